"""What of the documentation is not executed, and why. Each entry must be on its page; the list is to stay short."""

from __future__ import annotations

from typing import Final

# Page → the line of a shell block, as it stands there without its comment → why.
LINES: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "make run": "the newcomer's walk does it (tests/newcomer)",
        "make test": "this is a part of it",
        "helio cluster dev": "the tutorial of the cluster does it",
        "helio demo partition": "the newcomer's walk does it (tests/newcomer)",
        "make demo": "the newcomer's walk does it (tests/newcomer)",
    },
    "CONTRIBUTING.md": {
        "make check": "this is a part of what it checks",
        "make test": "this is a part of it",
        "make format": "it would change the files that are being tested",
    },
    "docs/tutorial/five-minutes.md": {
        "python -m venv helio-env": "tests/packaging makes a fresh environment",
        "helio-env/bin/pip install heliograph": "tests/packaging installs the wheel of this version",
    },
    "docs/guides/unit-of-order.md": {
        "helio units queue:payments --resume account-7": "needs a unit that stopped: test_unit_stories.py",
        "helio units queue:payments --give-up account-7": "needs a unit that stopped: test_unit_stories.py",
    },
    "docs/guides/partitions.md": {
        "helio demo partition": "the newcomer's walk does it; the tutorial in one process",
        "helio cluster status --url helio://h1:7700,h2:7700,h3:7700": "its hosts are three machines",
    },
    "docs/guides/clustered-consumers.md": {
        "python examples/clustered_consumers.py amqp://localhost": "needs RabbitMQ: tests/clustered has one",
    },
    "docs/guides/installation.md": {
        "python -m venv /opt/heliograph": "tests/packaging makes one in a folder of its own",
        "/opt/heliograph/bin/pip install 'heliograph[cluster]'": "tests/packaging installs the wheel of this version",
        "packaging/install.sh": "tests/packaging does it below a folder of its own",
        "podman build --tag heliograph --file packaging/Containerfile .": "needs a service for containers",
        "podman run --publish 127.0.0.1:7700:7700 --volume heliograph-data:/var/lib/heliograph heliograph": (
            "needs a service for containers; tests/packaging runs what the container runs"
        ),
        "HELIO_ADMIN_PASSWORD=choose-one podman-compose --file packaging/compose.yaml up": (
            "needs a service for containers; tests/packaging runs what makes the files"
        ),
    },
}

# Page → the first line of a block of Python → why.
BLOCKS: Final[dict[str, dict[str, str]]] = {
    "docs/reference/spark.md": {"orders = (": "tests/spark runs the same query, and kills it"},
}

# Page → why none of its shell blocks is executed here.
SHELLS: Final[dict[str, str]] = {
    "docs/guides/cluster.md": "its hosts are three machines; tests/cluster/test_three_hosts.py performs it on three"
    " hosts in namespaces, docs/tutorial/cluster.md on this one",
}
