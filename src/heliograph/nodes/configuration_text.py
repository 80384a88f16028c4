"""The configuration as text: the commented file with all defaults, and the reference page."""

from __future__ import annotations

import textwrap

from heliograph.model.policy import DEFAULT_POLICY, SETTINGS
from heliograph.nodes.configuration import INVALID, Configuration, settings, toml_of


def render_defaults() -> str:
    """The whole configuration as a commented TOML file that says what holds without one."""
    lines = [
        "# Heliograph's configuration. Every value below is the default: keep only the lines that you change."
    ]
    section = ""
    for setting in settings():
        if setting.section != section:
            section = setting.section
            kind = type(getattr(Configuration(), section))
            lines += ["", f"# {kind.__doc__}", f"[{section}]"]
        else:
            lines.append("")
        lines += textwrap.wrap(
            setting.description,
            width=100,
            initial_indent="# ",
            subsequent_indent="# ",
            break_on_hyphens=False,
        )
        lines += [f"# Accepts {setting.accepts}.", f"{setting.name} = {toml_of(setting.default)}"]
    return "\n".join([*lines, *_CREATION_LINES, *_policy_lines()]) + "\n"


# Rules have no place in a file that changes nothing, so they are shown behind #.
_CREATION_LINES = (
    "",
    "# Who may create destinations, as many rules as you like. The first whose pattern matches decides: only",
    "# the users and roles that it names create such queues and topics, and administrators. Where none",
    "# matches, the access rules of the users file decide. In the pattern * stands for any characters and ?",
    "# for one.",
    "# [[creation]]",
    '# destinations = "queue:orders.*"',
    "# users = []",
    "# roles = []",
)


def _policy_lines() -> list[str]:
    """Likewise."""
    lines = [
        "",
        "# Policies of destinations, as many as you like. The first whose pattern matches is given to a",
        "# destination when it is made; `helio admin destination set` changes it later. In the pattern *",
        "# stands for any characters and ? for one.",
        "# [[policies]]",
        '# destinations = "queue:orders.*"',
    ]
    for key, setting in SETTINGS.items():
        meaning = setting.meaning[0].upper() + setting.meaning[1:]
        lines += [
            "#",
            f"# # {meaning}.",
            f"# # Accepts {setting.accepts}.",
            f"# {key} = {toml_of(getattr(DEFAULT_POLICY, key))}",
        ]
    return [*lines, *_DISTRIBUTION_LINES]


_DISTRIBUTION_LINES = (
    "#",
    "# # The sub-clusters that such a destination has a member in, or all; without it, it is in one.",
    '# # Accepts a list of names of sub-clusters, or "all".',
    '# members = "all"',
    "#",
    "# # Former members: no unit of order begins there any more, but what is there is received.",
    "# # Accepts a list of names of sub-clusters.",
    "# leaving = []",
    "#",
    "# # How a unit of order finds its member: by its name alone, or by a path that is remembered.",
    '# # Accepts "hash" or "path".',
    '# routing = "hash"',
    "#",
    "# # The sub-cluster that remembers paths; empty: the name of the destination decides.",
    "# # Accepts a text.",
    '# path_service = ""',
)


def render_reference() -> str:
    """The page docs/reference/configuration.md."""
    return f"""\
# Configuration

A server needs no configuration. To change something, write a TOML file with the keys that differ and start
the server with it; options on the command line win over the file.

```sh
helio serve --print-config > heliograph.toml    # all settings with their defaults, to edit
helio serve --config heliograph.toml
```

A key that does not exist, or a value that it does not accept, stops the start with the code `{INVALID}` and a
sentence that names the key; in a policy the code is `policy-invalid`, for a pattern `pattern-invalid`. These are
all settings, with their defaults:

```toml
{render_defaults()}```
"""
