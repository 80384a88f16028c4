"""Ties tests to requirements.

`@pytest.mark.req("J1", "J3")` says which requirements a test proves. An id that docs/requirements.md does not
list stops the collection. With `--coverage-of-spec` only such tests run, and the summary prints every
requirement with its tests and how each ended; with `--collect-only` besides, it lists them without running.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parent.parent / "docs" / "requirements.md"
LINE = re.compile(r"^- \*\*(?P<id>[A-Z]\d+)\*\* (?P<title>[^:]+): (?P<text>.+)$")
# A test ends as the worst of its three phases did.
SEVERITY = ("not run", "passed", "skipped", "failed")
PROPERTY = "requirement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One line of docs/requirements.md."""

    id: str
    title: str
    text: str


def read_requirements(lines: Iterable[str]) -> Iterator[Requirement]:
    """Every requirement in the order of the document, repeated ids included."""
    for line in lines:
        if found := LINE.match(line):
            yield Requirement(id=found["id"], title=found["title"], text=found["text"])


def listed_requirements() -> list[Requirement]:
    """The project's own list."""
    return list(read_requirements(REQUIREMENTS.read_text(encoding="utf-8").splitlines()))


def ids_of(item: pytest.Item) -> list[str]:
    """The ids on a test, its class and its module, each once."""
    return list(dict.fromkeys(str(id) for mark in item.iter_markers("req") for id in mark.args))


@dataclass(slots=True, kw_only=True, eq=False)
class Coverage:
    """Which tests claim which requirement, and how they ended."""

    requirements: list[Requirement]
    only_claims: bool
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = {requirement.id for requirement in self.requirements}
        unknown = [f"{item.nodeid}: {id}" for item in items for id in ids_of(item) if id not in known]
        if unknown:
            raise pytest.UsageError("requirements that docs/requirements.md does not list:", *unknown)
        for item in items:
            for id in ids_of(item):
                self.record(id, item.nodeid, "not run")
                item.user_properties.append((PROPERTY, id))
        if self.only_claims:
            config.hook.pytest_deselected(items=[item for item in items if not ids_of(item)])
            items[:] = [item for item in items if ids_of(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, id in report.user_properties:
            if name == PROPERTY:
                self.record(str(id), report.nodeid, report.outcome)

    def record(self, id: str, test: str, outcome: str) -> None:
        tests = self.outcomes.setdefault(id, {})
        tests[test] = max(outcome, tests.get(test, "not run"), key=SEVERITY.index)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.only_claims:
            return
        terminalreporter.section("requirements and the tests that prove them")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        for requirement in self.requirements:
            tests = self.outcomes.get(requirement.id, {})
            yield f"{requirement.id:<4} {requirement.title:<32} {self.verdict(requirement.id)}"
            yield from (f"       {outcome:<8} {test}" for test, outcome in tests.items())
        proved = sum(self.is_proved(requirement.id) for requirement in self.requirements)
        yield ""
        yield f"{proved} of {len(self.requirements)} requirements have tests that all pass"

    def is_proved(self, id: str) -> bool:
        """Some test passed and none failed; a skipped test proves nothing and disproves nothing."""
        outcomes = self.outcomes.get(id, {}).values()
        return "passed" in outcomes and "failed" not in outcomes

    def verdict(self, id: str) -> str:
        outcomes = list(self.outcomes.get(id, {}).values())
        counts = [f"{outcomes.count(each)} {each}" for each in reversed(SEVERITY) if each in outcomes]
        return ", ".join(counts) or "none yet"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--coverage-of-spec",
        action="store_true",
        help="run the tests that claim a requirement and print every requirement with its tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    only_claims = bool(config.getoption("--coverage-of-spec"))
    coverage = Coverage(requirements=listed_requirements(), only_claims=only_claims)
    config.pluginmanager.register(coverage, "requirements-coverage")
