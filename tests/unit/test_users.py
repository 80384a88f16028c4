"""Users, their passwords, and whether a server may do without them (X2)."""

import stat
import statistics
import time
from pathlib import Path

import pytest

from heliograph.model.errors import ClientFault
from heliograph.nodes.users import (
    Identity,
    UserStore,
    hash_password,
    open_to_everyone,
    verify_password,
)
from heliograph.sessions.access import Right

pytestmark = pytest.mark.req("X2")


def written(folder: Path, text: str) -> Path:
    path = folder / "users.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_password_is_kept_as_a_salted_hash() -> None:
    first, second = hash_password("öpen"), hash_password("öpen")
    assert first != second
    assert first.startswith("scrypt$16384$8$1$")
    assert "öpen" not in first
    assert verify_password("öpen", first)
    assert verify_password("öpen", second)
    assert not verify_password("open", first)


def test_users_come_and_go_and_the_file_remembers(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "users.toml"
    store = UserStore.load(path)
    store.add("ann", "secret", ["clerk", "clerk", "admin"])
    store.add("bob@example.org", "hidden")
    again = UserStore.load(path)
    assert again.verify("ann", "secret") == Identity("ann", ("clerk", "admin"))
    assert again.verify("bob@example.org", "hidden") == Identity("bob@example.org")
    assert again.verify("ann", "hidden") is None
    assert again.verify("eve", "secret") is None
    again.remove("ann")
    assert list(UserStore.load(path).users) == ["bob@example.org"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["users.toml"]


def test_rules_stand_in_the_same_file_and_survive_a_rewrite(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '[[access]]\nroles = ["clerk"]\ndestinations = "queue:orders.*"\nrights = ["send", "receive"]\n',
    )
    UserStore.load(path).add("ann", "secret", ["clerk"])
    store = UserStore.load(path)
    ann = store.identity("ann")
    assert ann is not None
    assert store.access_control().allows(ann, Right.SEND, "queue:orders.new")
    assert not store.access_control().allows(ann, Right.SEND, "queue:other")


def test_a_user_who_does_not_exist_takes_as_long_as_one_who_does(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.toml")
    store.add("ann", "secret")

    def typical(name: str) -> float:
        times = []
        for _ in range(5):
            began = time.thread_time()
            assert store.verify(name, "wrong") is None
            times.append(time.thread_time() - began)
        return statistics.median(times)

    # Without the work a refusal takes microseconds, a thousand times less.
    assert typical("eve") > typical("ann") / 4


def test_the_same_user_is_not_added_twice_nor_an_unknown_one_removed(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.toml")
    store.add("ann", "secret")
    with pytest.raises(ClientFault, match="there is a user 'ann' already") as fault:
        store.add("ann", "other")
    assert fault.value.code == "user-exists"
    with pytest.raises(ClientFault, match="there is no user 'eve'") as fault:
        store.remove("eve")
    assert fault.value.code == "user-unknown"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\nb", 'a"b', "x" * 65])
def test_names_that_other_protocols_could_not_carry_are_refused(tmp_path: Path, name: str) -> None:
    store = UserStore(tmp_path / "users.toml")
    with pytest.raises(ClientFault) as fault:
        store.add(name, "secret")
    assert fault.value.code == "user-invalid"
    with pytest.raises(ClientFault, match="a role has a name"):
        store.add("ann", "secret", [name])
    assert not store.path.exists()


@pytest.mark.parametrize("password", ["", "x" * 1025])
def test_an_empty_or_endless_password_is_refused(tmp_path: Path, password: str) -> None:
    with pytest.raises(ClientFault, match="1 to 1024 bytes"):
        UserStore(tmp_path / "users.toml").add("ann", password)


def test_a_password_that_only_begins_like_the_right_one_is_wrong(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.toml")
    store.add("ann", "x" * 1024)
    assert store.verify("ann", "x" * 1024) is not None
    assert store.verify("ann", "x" * 5000) is None


HASH = hash_password("secret")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[users", "is wrong"),
        ("[users.ann]\npassword = 'plain'", "the password of 'ann' is no hash"),
        (f"[users.ann]\npassword = '{HASH.replace('16384', '16383')}'", "is no hash"),
        (f"[users.ann]\npassword = '{HASH.replace('16384', '1073741824')}'", "is no hash"),
        (f"[users.ann]\npassword = '{HASH}'\nrole = 'x'", "unknown field `role`"),
        (f"[users.'a b']\npassword = '{HASH}'", "a user has a name"),
        (
            "[[access]]\nusers=['a']\ndestinations='orders'\nrights=['send']",
            "a pattern is written queue:NAME",
        ),
        ("[[access]]\nusers=['a']\ndestinations='queue:a'\nrights=['fly']", "'fly'"),
        ("[[access]]\ndestinations='queue:a'\nrights=['send']", "names no users and no roles"),
        ("[[rules]]\n", "unknown field `rules`"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ClientFault, match=sentence) as fault:
        UserStore.load(written(tmp_path, text))
    assert fault.value.code == "users-file-invalid"


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.chmod(0o640)
    with pytest.raises(ClientFault, match="run `chmod 600 ") as fault:
        UserStore.load(path)
    assert fault.value.code == "users-file-exposed"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_without_users_a_server_on_its_own_machine_is_open(tmp_path: Path, host: str) -> None:
    assert open_to_everyone(host, tmp_path / "users.toml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_without_users_a_server_that_others_can_reach_does_not_start(tmp_path: Path, host: str) -> None:
    with pytest.raises(ClientFault, match=r"helio user add NAME .*127\.0\.0\.1") as fault:
        open_to_everyone(host, tmp_path / "users.toml")
    assert fault.value.code == "open-server-refused"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_users_nobody_is_a_guest(tmp_path: Path, host: str) -> None:
    assert not open_to_everyone(host, written(tmp_path, ""))
