"""The command line against a real server, as a person or a script uses it. Every command is a process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import heliograph

pytestmark = [pytest.mark.req("X4"), pytest.mark.slow]

HELIO = (sys.executable, "-m", "heliograph.cli.main")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("HELIO_")}
PATIENCE_SECONDS = 90.0
# What a test receives is already there.
SOON = ("--timeout", "1.5")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


class Server:
    """A `helio serve` and its clients."""

    def __init__(self, folder: Path, *options: str, user: str = "", password: str = "") -> None:
        self.folder = folder
        ready = folder / "ready"
        ready.unlink(missing_ok=True)
        command = [
            *HELIO,
            "serve",
            "--port",
            "0",
            "--data",
            str(folder / "data"),
            "--ready-file",
            str(ready),
            *options,
        ]
        self.process = subprocess.Popen(
            command,
            env=CLEAN,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        until(lambda: ready.exists() or self.process.poll() is not None, "the server is ready")
        assert ready.exists(), self.process.stderr and self.process.stderr.read()
        self.address = ready.read_text(encoding="utf-8").strip()
        self.environment = {**CLEAN, "HELIO_URL": f"helio://{self.address}"}
        if user:
            self.environment |= {"HELIO_USER": user, "HELIO_PASSWORD": password}

    def command(self, *arguments: str) -> list[str]:
        return [*HELIO, *arguments]

    def run(
        self, *arguments: str, input: bytes | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        result = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            input=input,
            stdin=None if input is not None else subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert result.returncode == code, (result.stdout, result.stderr)
        assert b"Traceback" not in result.stderr
        return result

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def texts(self, destination: str, *options: str) -> list[str]:
        return self.run("receive", destination, "--bodies-only", *SOON, *options).stdout.decode().splitlines()

    def records(self, destination: str, *options: str) -> list[dict[str, Any]]:
        output = self.run("receive", destination, "--json", *SOON, *options).stdout
        return [json.loads(line) for line in output.splitlines()]

    def destination(self, address: str) -> dict[str, Any]:
        report = json.loads(self.run("top", "--once", "--interval", "0.1", "--json").stdout)
        found = [entry for entry in report["destinations"] if entry["address"] == address]
        return found[0] if found else {}

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        if self.process.poll() is None:
            self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output, errors


@contextmanager
def serving(folder: Path, *options: str, user: str = "", password: str = "") -> Iterator[Server]:
    server = Server(folder, *options, user=user, password=password)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--durability", "write") as server:
        code, output, errors = server.stop(number)
    assert (code, errors) == (0, "")
    assert f"listens on helio://{server.address}, data {tmp_path}/data, durability write" in output


@pytest.mark.req("J1")
def test_what_is_sent_to_a_queue_is_received_once(server: Server) -> None:
    sent = server.run("send", "queue:once", "Hello, world")
    assert sent.stdout.startswith(b"1 message confirmed, sent to queue:once (")
    received = server.run("receive", "queue:once")
    assert received.stdout.decode().rstrip().endswith("  Hello, world")
    assert received.stderr == b"1 message received from queue:once\n"
    again = server.run("receive", "queue:once")
    assert (again.stdout, again.stderr) == (b"", b"no message came from queue:once within 1 s\n")


def test_headers_and_properties_arrive(server: Server) -> None:
    options = [
        "--property",
        "colour=red",
        "--property",
        "n:=3",
        "--priority",
        "7",
        "--ttl",
        "600",
        "--non-persistent",
    ]
    receipt = json.loads(server.run("send", "queue:headers", "x", *options, "--json").stdout)
    (record,) = server.records("queue:headers")
    assert record["id"] == receipt["id"]
    assert record["properties"] == {"colour": "red", "n": 3}
    assert (record["priority"], record["persistent"], record["redelivered"]) == (7, False, False)
    assert record["expiration"] == pytest.approx(time.time() + 600, abs=60)
    assert (record["body"], record["body_kind"], record["destination"]) == ("x", "text", "queue:headers")


def test_every_line_of_standard_input_is_a_message(server: Server) -> None:
    sent = server.run("send", "queue:lines", "-", "--json", input="one\n\ngrün\n".encode() + b"\xff\xfe")
    assert json.loads(sent.stdout)["confirmed"] == 4
    records = server.records("queue:lines")
    assert [record["body"] for record in records] == ["one", "", "grün", "//4="]
    assert [record["body_encoding"] for record in records] == [None, None, None, "base64"]


def test_many_messages_and_only_as_many_as_wanted(server: Server) -> None:
    receipt = json.loads(server.run("send", "queue:many", "--size", "10", "--count", "3000", "--json").stdout)
    assert (receipt["confirmed"], receipt["bytes"], receipt["id"]) == (3000, 30_000, None)
    assert server.texts("queue:many", "--count", "1000") == ["x" * 10] * 1000
    assert server.destination("queue:many")["depth"] == 2000
    assert len(server.texts("queue:many")) == 2000


def test_what_was_not_printed_is_not_taken(server: Server) -> None:
    server.run("send", "queue:pipe", "-", input=b"".join(b"%d %s\n" % (n, b"x" * 1000) for n in range(3000)))
    receiving = server.start("receive", "queue:pipe", "--bodies-only")
    assert receiving.stdout is not None
    first = receiving.stdout.readline()
    receiving.stdout.close()
    assert receiving.wait(PATIENCE_SECONDS) == 0
    assert receiving.stderr is not None
    assert receiving.stderr.read() == b""
    assert first.startswith(b"0 ")
    rest = [int(line.split()[0]) for line in server.texts("queue:pipe")]
    assert rest == list(range(rest[0], 3000))
    # A pipe holds 64 KiB, so far fewer than a thousand of these can have been printed.
    assert rest[0] < 1000


@pytest.mark.req("J1")
def test_everybody_who_follows_a_topic_gets_a_copy_until_interrupted(server: Server) -> None:
    followers = [server.start("receive", "topic:news", "--follow", "--bodies-only") for _ in range(2)]
    until(lambda: server.destination("topic:news").get("consumers") == 2, "both follow")
    server.run("send", "topic:news", "extra")
    for follower in followers:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"extra\n"
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=PATIENCE_SECONDS)
        assert follower.returncode == 0
        assert errors.decode().strip() == "1 message received from topic:news"


def test_top_shows_what_waits(server: Server) -> None:
    server.run("send", "queue:waiting", "x", "--count", "5")
    table = server.run("top", "--once", "--interval", "0.1").stdout.decode()
    (row,) = [line.split() for line in table.splitlines() if "queue:waiting" in line]
    assert row[:4] == ["queue:waiting", "5", "0", "0"]
    assert f"helio://{server.address} · up " in table
    report = json.loads(server.run("top", "--once", "--interval", "0.1", "--json").stdout)
    assert report["server"]["durability"] == "fsync"
    assert report["server"]["connections"] >= 1


def test_a_wrong_address_is_told_in_words_and_code(server: Server) -> None:
    refused = server.run("send", "mailbox:a", "x", code=2)
    assert (
        b"a destination is written queue:NAME, topic:NAME or alerts:NAME, not 'mailbox:a'" in refused.stderr
    )
    as_json = server.run("receive", "mailbox:a", "--json", code=2)
    assert json.loads(as_json.stdout)["error"]["code"] == "invalid-destination"


@pytest.mark.req("M11")
def test_who_takes_from_a_destination_is_listed(server: Server) -> None:
    server.run("send", "queue:taken", "one")
    assert (
        b"nobody takes from queue:taken"
        in server.run("admin", "destination", "consumers", "queue:taken").stderr
    )
    follower = server.start("receive", "queue:taken", "--follow")
    try:
        until(lambda: server.destination("queue:taken")["consumers"] == 1, "somebody takes")
        shown = server.run("admin", "destination", "consumers", "queue:taken").stdout.decode()
        assert "guest" in shown
        assert "room for" in shown
        listed = json.loads(server.run("admin", "destination", "consumers", "queue:taken", "--json").stdout)
        assert [each["user"] for each in listed["consumers"]] == ["guest"]
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=PATIENCE_SECONDS)


def test_units_that_are_stopped_are_found_wherever_they_are(server: Server) -> None:
    assert server.run("units").stdout == b"no unit of order is stopped\n"
    server.run("send", "queue:books", "first", "--unit", "account-7")
    for name in ("queue:books", "queue:ledger"):
        _stop_a_unit(server, name)
    shown = server.run("units").stdout.decode()
    assert shown.index("queue:books") < shown.index("queue:ledger")
    assert "helio units queue:ledger --resume account-7" in shown
    assert b"name the destination too" in server.run("units", "--resume", "account-7", code=2).stderr
    for name in ("queue:books", "queue:ledger"):
        server.run("units", name, "--give-up", "account-7")
    assert json.loads(server.run("units", "--json").stdout) == {"units": []}


def _stop_a_unit(server: Server, name: str) -> None:
    with heliograph.connect_blocking(server.environment["HELIO_URL"]) as connection:
        session = connection.session(acknowledge="individual")
        session.producer(name).send_confirmed("second", unit_of_order="account-7")
        connection.ask(
            "destination.set", destination=name, policy={"redelivery_limit": 1, "unit_stops": True}
        )
        message = session.consumer(name).receive(timeout=30)
        assert message is not None
        assert message.unit_of_order == "account-7"
        message.reject("it does not balance")


def test_orders_about_a_cluster_are_nothing_for_a_server_that_stands_alone(server: Server) -> None:
    for order in (("remove", "1.3"), ("override",)):
        said = server.run("cluster", *order, "--yes", code=2).stderr
        assert b"this server stands alone: it is not a node of a cluster [not-clustered]" in said


def test_figures_are_for_people_unless_a_program_asks(server: Server) -> None:
    shown = server.run("admin", "server").stdout.decode()
    assert re.search(r"^rss_bytes +\d+ MiB$", shown, re.MULTILINE)
    assert re.search(r"^uptime_seconds +[\d.]+ (s|min \d+ s)$", shown, re.MULTILINE)
    assert json.loads(server.run("admin", "server", "--json").stdout)["rss_bytes"] > 1024 * 1024


def test_names_of_the_server_are_not_for_everybody(server: Server) -> None:
    server.run("send", "queue:_mine", "x", code=2)


def test_without_a_server_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    for arguments in (["send", "queue:a", "x"], ["receive", "queue:a"], ["top", "--once"]):
        result = subprocess.run(
            [*HELIO, *arguments, "--url", "helio://ann:secret@127.0.0.1:1"],
            env=CLEAN,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert result.returncode == 3
        assert result.stderr.startswith(
            "helio: no server answers at helio://127.0.0.1:1: start one with `helio serve`"
        )
        assert result.stderr.count("\n") == 1


def test_a_port_that_is_taken_ends_the_start_in_words(server: Server, tmp_path: Path) -> None:
    port = server.address.rpartition(":")[2]
    refused = server.run("serve", "--port", port, "--data", str(tmp_path / "other"), code=2)
    assert port.encode() in refused.stderr


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        first.run("send", "queue:kept", "-", input=b"a\nb\nc\n")
        assert first.stop()[0] == 0
    with serving(tmp_path) as second:
        assert second.texts("queue:kept") == ["a", "b", "c"]


@pytest.mark.req("X2")
def test_an_open_server_is_not_offered_to_the_network(tmp_path: Path) -> None:
    result = subprocess.run(
        [*HELIO, "serve", "--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path)],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert result.returncode == 2
    assert "helio user add NAME" in result.stderr
    assert "[open-server-refused]" in result.stderr


@pytest.mark.req("X2")
def test_with_users_nobody_gets_in_without_a_password_or_beyond_their_rights(tmp_path: Path) -> None:
    users = ["--data", str(tmp_path / "data")]
    for name, role in (("root", "admin"), ("ann", "clerk")):
        subprocess.run(
            [*HELIO, "user", "add", name, "--role", role, "--password-stdin", *users],
            input=f"{name} secret\n".encode(),
            env=CLEAN,
            check=True,
            capture_output=True,
        )
    with (tmp_path / "data" / "users.toml").open("a", encoding="utf-8") as stream:
        stream.write(
            '[[access]]\nroles = ["clerk"]\ndestinations = "queue:orders.*"\nrights = ["send", "create"]\n'
        )
    with serving(tmp_path, user="ann", password="ann secret") as server:
        server.run("send", "queue:orders.new", "x")
        refused = server.run("receive", "queue:orders.new", "--json", code=2)
        assert json.loads(refused.stdout)["error"]["code"] == "not-allowed"
        server.run("send", "queue:elsewhere", "x", code=2)
        for user, password in (("ann", "wrong"), ("eve", "ann secret"), ("", "")):
            server.environment |= {"HELIO_USER": user, "HELIO_PASSWORD": password}
            refused = server.run("send", "queue:orders.new", "x", "--json", code=2)
            assert json.loads(refused.stdout)["error"]["code"] == "not-authenticated"
        server.environment |= {"HELIO_USER": "root", "HELIO_PASSWORD": "root secret"}
        assert server.texts("queue:orders.new") == ["x"]


@pytest.mark.parametrize("workload", ["queue", "paced", "sync", "fanout", "latency"])
def test_every_workload_is_measured(tmp_path: Path, workload: str) -> None:
    options = [
        "--workload",
        workload,
        "--messages",
        "600",
        "--size",
        "64",
        "--durability",
        "write",
        "--data",
        str(tmp_path),
    ]
    result = subprocess.run(
        [*HELIO, "bench", "run", *options, "--json"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads(result.stdout)
    assert (figures["workload"], figures["messages"], figures["size"]) == (workload, 600, 64)
    assert figures["durability"] == "write"
    assert figures["messages_per_second"] > 0
    assert figures["server_rss_mb"] > 1
    assert (figures["p99_ms"] is not None) == (workload in ("sync", "latency"))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.req("M6")
def test_files_are_sent_and_received_whole_whatever_their_size(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"a few bytes")
    large.write_bytes(os.urandom(5_000_000))
    with serving(tmp_path) as server:
        for path in (small, large):
            receipt = json.loads(server.run("send", "queue:a", "--file", str(path), "--json").stdout)
            assert (receipt["confirmed"], receipt["bytes"]) == (1, path.stat().st_size)
        shown = [json.loads(line) for line in server.run("browse", "queue:a", "--json").stdout.splitlines()]
        assert [(each["body_kind"], each["body_size"]) for each in shown] == [
            ("bytes", None),
            ("large", 5_000_000),
        ]
        assert b"4.8 MiB, large" in server.run("browse", "queue:a").stdout
        folder = tmp_path / "received"
        told = server.run("receive", "queue:a", "--output", f"{folder}/", "--json", *SOON).stdout
        files = [Path(json.loads(line)["file"]) for line in told.splitlines()]
        assert [file.read_bytes() for file in files] == [small.read_bytes(), large.read_bytes()]
        assert sorted(folder.iterdir()) == sorted(files), "and nothing else is left there"
        assert server.destination("queue:a")["depth"] == 0


@pytest.mark.req("M6")
def test_one_message_goes_to_one_file_and_a_large_one_through_a_pipe(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    with serving(tmp_path) as server:
        server.run("send", "queue:a", "--file", "-", input=content)
        server.run("send", "queue:a", "second")
        server.run("send", "queue:a", "--file", "-", input=content)
        target = tmp_path / "out"
        told = server.run("receive", "queue:a", "-o", str(target), *SOON).stdout.decode()
        assert told == f"{target}  2.9 MiB\n"
        assert target.read_bytes() == content
        assert server.destination("queue:a")["depth"] == 2, "one was asked for"
        rest = server.run("receive", "queue:a", "--bodies-only", *SOON).stdout
        assert rest == b"second\n" + content + b"\n"


@pytest.mark.req("M6")
def test_what_cannot_be_written_stays_on_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.run("send", "queue:a", "kept")
        (tmp_path / "file").write_text("in the way")
        refused = server.run("receive", "queue:a", "-o", str(tmp_path / "file" / "x"), *SOON, code=2)
        assert b"cannot be written" in refused.stderr
        until(lambda: server.destination("queue:a")["depth"] == 1, "it is back")
        missing = server.run("send", "queue:a", "--file", str(tmp_path / "none"), code=2)
        assert b"none cannot be read: No such file or directory [usage]" in missing.stderr
        assert server.run("receive", "queue:a", "-o", f"{tmp_path}/all", "-n", "2", code=2).stdout == b""
