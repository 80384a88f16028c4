"""All commands with their arguments and options, as a page, from the code that reads them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import typer

_TYPES = {"str": "text", "int": "number", "integer": "number", "float": "number", "list": "text"}
_HEAD = """# All commands and options

Made from the code. [The command line](cli.md) says what the commands are for, with examples.
"""


def rendered() -> str:
    """The page, as Markdown."""
    from heliograph.cli.main import app

    pages = [_HEAD]
    for name, command in commands(typer.main.get_command(app), "helio"):
        pages.append(_section(name, command))
    return "\n".join(pages)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for each, sub in inner.items():
        yield from commands(sub, f"{name} {each}")


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    shown = " ".join([name, *(_usage(each) for each in arguments), "[OPTIONS]" if options else ""]).rstrip()
    lines = [f"## {name}", "", f"`{shown}`", "", _cell(command.help or ""), ""]
    if arguments or options:
        lines += ["| | | default |", "|---|---|---|"]
    lines += [
        f"| `{_cell(_usage(each))}` | {_cell(each.help or '')} | {_default(each)} |" for each in arguments
    ]
    lines += [f"| {_names(each)} | {_cell(each.help or '')} | {_default(each)} |" for each in options]
    return "\n".join(lines) + "\n"


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name.strip('[]')}]"


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag or option.count:
        return names
    return f"{names} `{_cell(option.metavar or _kind(option))}`"


def _kind(option: Any) -> str:
    """What stands behind it: words to choose from, or a type."""
    described = getattr(option, "type_descriptor", None)  # typer that is not built on click any more
    if described is None:
        choices, name = getattr(option.type, "choices", ()), option.type.name
    else:
        kind = described.annotation
        is_enum = isinstance(kind, type) and issubclass(kind, enum.Enum)
        choices, name = list(kind) if is_enum else (), getattr(kind, "__name__", "text")
    return "|".join(map(_word, choices)) or _TYPES.get(name.lower(), name).upper()


def _default(parameter: Any) -> str:
    default, envvar = parameter.default, getattr(parameter, "envvar", None)
    shown = parameter.show_default
    if isinstance(shown, str):  # what holds where nothing is said, and is decided elsewhere
        default = shown
    is_shown = default not in (None, "", (), [], False, True) and not callable(default) and shown is not False
    words = [f"`{_word(default)}`"] if is_shown else []
    words += [f"`${envvar}`"] if envvar else []
    return ", ".join(words)


def _word(value: object) -> str:
    return str(getattr(value, "value", value))


def _cell(text: str) -> str:
    """One line of a table. Angle brackets and bars would mean something else there."""
    joined = " ".join(text.split())
    return joined.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
