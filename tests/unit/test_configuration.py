"""One TOML file, every key with a default, and a sentence for every mistake."""

import tomllib
from pathlib import Path

import pytest

from heliograph.model.errors import ClientFault
from heliograph.nodes.buses import names_of
from heliograph.nodes.configuration import (
    Configuration,
    buses_of,
    load,
    settings,
)
from heliograph.nodes.configuration_text import render_defaults, render_reference

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"

pytestmark = pytest.mark.req("X4")


def written(folder: Path, text: str) -> Path:
    path = folder / "heliograph.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_is_needed() -> None:
    configuration = load()
    assert configuration == Configuration()
    assert configuration.server.port == 7700
    assert configuration.journal.durability == "fsync"
    assert configuration.users_path == Path("heliograph-data/users.toml")


def test_the_default_file_says_what_holds_without_it(tmp_path: Path) -> None:
    assert load(written(tmp_path, render_defaults())) == Configuration()
    given = tomllib.loads(render_defaults())
    assert [f"{section}.{name}" for section, table in given.items() for name in table] == [
        setting.key for setting in settings()
    ]
    assert all(setting.description for setting in settings())


def test_the_reference_page_is_the_default_file() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == render_reference()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[server]\nport = 1\nhost = 'localhost'\n[limits]\nhandshake_seconds = 3\n")
    configuration = load(
        path, {"server.port": 0, "server.host": None, "server.data": "/data", "journal.durability": "write"}
    )
    assert (configuration.server.port, configuration.server.host) == (0, "localhost")
    assert configuration.journal.durability == "write"
    assert configuration.limits.handshake_seconds == 3.0
    assert configuration.users_path == Path("/data/users.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[server]\nprt = 1", "there is no setting server.prt; did you mean server.port?"),
        ("[server]\ndurability = 'fsync'", "did you mean journal.durability?"),
        ("durability = 'fsync'", "did you mean journal.durability?"),
        ("[severs]", "there is no setting severs; did you mean server?"),
        ("[x]", "there is no setting x; `helio serve --print-config` shows all that there are"),
        ("server = 1", "server is a section: write \\[server\\]"),
        ("[server]\nport = 'a'", 'server.port must be a whole number from 0 to 65535, not "a"'),
        ("[server]\nport = 65536", "server.port must be a whole number from 0 to 65535, not 65536"),
        ("[server]\nport = true", "not true"),
        ("[server]\nport = [1]", "not a list"),
        ("[server]\nhost = ''", 'server.host must be a text that is not empty, not ""'),
        ("[journal]\ndurability = 'no'", 'durability must be one of "fsync", "write", "memory", not "no"'),
        (
            "[limits]\nhandshake_seconds = nan",
            "limits.handshake_seconds must be a number from 0.1 to 3600, not nan",
        ),
        ("[limits]\nheartbeat_seconds = inf", "not inf"),
        ("[destinations]\ncreate_on_first_use = 1", "must be true or false, not 1"),
        ("[server", "is not TOML"),
        ("[cluster]\nbuses = 'a b'", "cluster.buses are names with commas between them"),
        ("[cluster]\nbuses = 'a, b'", "two of a, b would be the same"),
        ("[cluster]\nbuses = 'a'\nbus = 'c'", "cluster.bus must be one of a, not c"),
        (
            "[cluster]\nbuses = 'a'\nbus_of_sub_clusters = 'main=b'",
            "cluster.bus_of_sub_clusters must give main one of a, not 'b'",
        ),
        (
            "[cluster]\nbuses = 'a'\nbus_of_sub_clusters = 'east=a'",
            "cluster.bus_of_sub_clusters names east, and there is only main",
        ),
        ("[cluster]\nbuses = 'a'\nbus_namespaces = 'b=x'", "cluster.bus_namespaces names b"),
        (
            "[cluster]\nbus_layout = 'ring'",
            'one of "client-managers-on-all", "message-managers-on-all", not "ring"',
        ),
    ],
)
def test_every_mistake_is_explained_by_its_key(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ClientFault, match=sentence) as fault:
        load(written(tmp_path, text))
    assert fault.value.code == "configuration-invalid"


def test_overrides_are_held_to_the_same_rules() -> None:
    with pytest.raises(ClientFault, match=r"server\.port must be a whole number from 0 to 65535, not -1"):
        load(None, {"server.port": -1})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientFault, match=r"missing\.toml cannot be read: No such file"):
        load(tmp_path / "missing.toml")


@pytest.mark.req("M3")
def test_nodes_are_on_the_buses_that_their_settings_say() -> None:
    def names(role: str, **other: str) -> tuple[str, ...]:
        given = {f"cluster.{key}": value for key, value in other.items()}
        cluster = load(
            None,
            {
                "cluster.name": "here",
                "cluster.role": role,
                "cluster.sub_clusters": "x, y",
                "cluster.sub_cluster": "y",
                "cluster.buses": "a, b, c",
                "cluster.bus_namespaces": "b=1, c=2",
                "cluster.bus_of_sub_clusters": "y=c",
                **given,
            },
        ).cluster
        buses = buses_of(cluster)
        assert buses is not None
        return names_of(cluster, buses)

    assert names("client-manager") == names("both") == ("a", "c")
    assert names("message-manager") == ("c",)
    assert names("client-manager", bus_layout="message-managers-on-all", bus="b") == ("b",)
    assert names("message-manager", bus_layout="message-managers-on-all") == ("a", "b", "c")


@pytest.mark.req("M11")
def test_creation_rules_are_read_and_explained(tmp_path: Path) -> None:
    text = '[[creation]]\ndestinations = "queue:a.*"\nroles = ["clerk"]\n[[creation]]\ndestinations = "*"\n'
    rules = load(written(tmp_path, text)).creation_rules()
    assert [(rule.destinations, rule.users, rule.roles) for rule in rules] == [
        ("queue:a.*", (), ("clerk",)),
        ("*", (), ()),
    ]
    for wrong, code in (
        ('[creation]\ndestinations = "*"', "configuration-invalid"),
        ("[[creation]]\nusers = ['ann']", "configuration-invalid"),
        ('[[creation]]\ndestinations = "*"\nusers = "ann"', "configuration-invalid"),
        ('[[creation]]\ndestinations = "a"', "pattern-invalid"),
    ):
        with pytest.raises(ClientFault) as fault:
            load(written(tmp_path, wrong))
        assert fault.value.code == code
