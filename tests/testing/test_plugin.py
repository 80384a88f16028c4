"""The fixtures for tests of applications, used as their authors do: pytest is started on a folder of their tests."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.req("X5"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "testing.md"
PLUGIN = "heliograph.testing.plugin"


def plugin_options() -> list[str]:
    """It is found by itself where this version is installed; otherwise it has to be named."""
    found = [entry.value for entry in entry_points(group="pytest11")]
    return [] if PLUGIN in found else ["-p", PLUGIN]


@pytest.fixture(autouse=True)
def this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin_options(), *options)


def test_the_programs_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    programs = re.findall(r'```python title="(\w+\.py)"\n(.*?)```', GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(programs) == 3
    for name, text in programs:
        (pytester.path / name).write_text(text, "utf-8")
    run(pytester).assert_outcomes(passed=6)


def test_parts_nodes_and_settings(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio, pytest, heliograph

        @pytest.fixture
        def heliograph_settings():
            return {"limits.max_connections": 1}

        def test_settings_hold(heliograph_server):
            with heliograph.connect_blocking(heliograph_server.url) as one:
                with pytest.raises(heliograph.HeliographError, match="connections"):
                    with heliograph.connect_blocking(heliograph_server.url) as other:
                        other.session()

        def test_a_node_goes_and_comes_back(heliograph_cluster):
            cluster = heliograph_cluster(3, {"limits.max_connections": 9})
            with heliograph.connect_blocking(cluster.url(2, 3)) as connection:
                connection.session().producer("queue:a").send_confirmed(b"before")
            cluster.stop(1)
            assert cluster.states() == {2: "C", 3: "C"}
            cluster.start(1)
            assert cluster.states() == {1: "A", 2: "A", 3: "A"}
            with heliograph.connect_blocking(cluster.url(1)) as connection:
                assert connection.session().consumer("queue:a").receive(timeout=30).body == b"before"

        def test_three_parts_of_five_and_the_rest(heliograph_cluster):
            cluster = heliograph_cluster(5)
            cluster.cut([1], [2, 3, 4])  # and 5, alone
            assert cluster.states() == {1: "D", 2: "C", 3: "C", 4: "C", 5: "D"}
            cluster.heal()
            assert set(cluster.states().values()) == {"A"}

        def test_mistakes_are_explained(heliograph_cluster):
            cluster = heliograph_cluster(2)
            with pytest.raises(ValueError, match="no 7"):
                cluster.cut([7])
            with pytest.raises(ValueError, match="one part only"):
                cluster.cut([1, 2], [2])
            with pytest.raises(ValueError, match="1 to 9 nodes"):
                heliograph_cluster(10)
            with pytest.raises(ValueError, match="0 to 3600 seconds"):
                cluster.clock.advance(-1)

        def test_the_whole_cluster_grows_older_and_stays_whole(heliograph_cluster, heliograph_clock):
            cluster = heliograph_cluster(3)
            with heliograph.connect_blocking(cluster.url(1)) as connection:
                session = connection.session()
                session.producer("queue:a").send_confirmed(b"later", delay=120)
                heliograph_clock.advance(121)
                assert session.consumer("queue:a").receive(timeout=30).body == b"later"
            assert set(cluster.states().values()) == {"A"}
            events = [event["event"] for event in asyncio.run(events_of(cluster))]
            assert "connection-lost" not in events

        async def events_of(cluster):
            async with heliograph.connect(cluster.url(1)) as connection:
                return (await connection.ask("log"))["events"]

        def test_asyncio(heliograph_cluster):
            async def story():
                cluster = heliograph_cluster(3)
                async with heliograph.connect(cluster.url(1)) as connection:
                    session = await connection.session()
                    producer = await session.producer("queue:a")
                    await asyncio.to_thread(cluster.cut, [1], [2, 3])
                    await producer.send_confirmed(b"x")
                    await asyncio.to_thread(cluster.heal)
                    consumer = await session.consumer("queue:a")
                    assert (await consumer.receive(timeout=30)).body == b"x"
            asyncio.run(story())
        """
    )
    run(pytester).assert_outcomes(passed=6)


def test_a_cluster_is_at_rest_when_it_is_started_cut_and_healed(pytester: pytest.Pytester) -> None:
    """Message managers that get the log make another view of the same members, between which there is none: whoever
    looks at all of them once, and again later, must see the same view."""
    pytester.makepyfile(
        """
        import time, pytest

        def views(cluster):
            return [(s.own.standing and s.own.standing.number, s.own.member.is_installed, s.lacks)
                    for s in cluster._servers.values()]

        @pytest.mark.parametrize("nodes", [2, 3, 4])
        def test_at_rest(heliograph_cluster, nodes):
            cluster = heliograph_cluster(nodes)
            for change in (lambda: None, lambda: cluster.cut([1]), cluster.heal):
                change()
                before = views(cluster)
                assert all(installed and not lacks for _, installed, lacks in before)
                end = time.monotonic() + 0.6
                while time.monotonic() < end:
                    assert views(cluster) == before
                    time.sleep(0.001)
        """
    )
    run(pytester).assert_outcomes(passed=3)


def test_a_server_that_failed_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(heliograph_cluster):
            from heliograph.model.errors import HeliographError
            cluster = heliograph_cluster(1)
            cluster._servers[1].failed_with(HeliographError("the disk is gone", code="defect"))
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the disk is gone*"])


def test_pytest_starts_as_quickly_as_without(pytester: pytest.Pytester) -> None:
    """Nothing of the server or the client library is imported before a test asks for it."""
    program = (
        f"import sys, {PLUGIN}; print(*sorted(name for name in sys.modules if name.startswith('heliograph')))"
    )
    imported = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=True,
    )
    assert imported.stdout.decode().split() == [
        "heliograph",
        "heliograph.model",
        "heliograph.model.errors",
        "heliograph.testing",
        PLUGIN,
    ]
