"""What a target tries: the modules of the rooms where bytes are read that it reaches, and what it does with them.

Hours of fuzzing count for the code that had them. Comments and layout are not code; nor is a module of another room,
such as the server's, which may change every day without anything being read otherwise.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import heliograph

TARGETS = Path(__file__).with_name("targets.py")
_ROOTS = {"heliograph": Path(heliograph.__file__).parent, "fuzz": Path(__file__).parent}
ROOMS = (
    "heliograph.model",
    "heliograph.frontends",
    "heliograph.bus",
    "heliograph.journal",
    "heliograph.security",
    "fuzz.desk",
)


def digest(target: str) -> str:
    """The same as long as what this target tries is the same."""
    written, modules = _reached(target)
    hashed = hashlib.sha256("\n".join(written).encode())
    for name in sorted(_closure(modules)):
        hashed.update(f"\n{name} {_dumped(_path(name))}".encode())
    return hashed.hexdigest()[:16]


def modules_of(target: str) -> list[str]:
    """The modules that it tries."""
    return sorted(_closure(_reached(target)[1]))


def _reached(target: str) -> tuple[list[str], set[str]]:
    """What a target is made of, as it is written in `targets.py`, and the modules that it uses directly."""
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, set[str]] = {}
    for statement in _tree(TARGETS).body:
        for name in _defines(statement):
            defined[name] = statement
        for name, module in _imports(statement):
            imported.setdefault(name, set()).add(module)
    found: dict[str, None] = {}
    modules: set[str] = set()
    waiting = [target]
    while waiting:
        name = waiting.pop()
        modules |= imported.get(name, set())
        if name in defined and name not in found:
            found[name] = None
            waiting += [each.id for each in ast.walk(defined[name]) if isinstance(each, ast.Name)]
    return [ast.dump(defined[name]) for name in sorted(found)], modules


def _defines(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names, and the module that each is, or is from."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name, alias.name
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield alias.asname or alias.name, inner if _exists(inner) else node.module


def _closure(modules: Iterable[str]) -> set[str]:
    """Those of the rooms, and all of the rooms that they import."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in found or not module.startswith(ROOMS) or not _exists(module):
            continue
        found.add(module)
        waiting += [inner for node in ast.walk(_tree(_path(module))) for _, inner in _imports(node)]
    return found


def _path(module: str) -> Path:
    root, *rest = module.split(".")
    path = _ROOTS[root].joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _exists(module: str) -> bool:
    return module.partition(".")[0] in _ROOTS and _path(module).exists()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def _dumped(path: Path) -> str:
    return ast.dump(_tree(path))
