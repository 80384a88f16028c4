"""libcpg, Corosync's library for closed process groups, as far as we use it.

Loaded at run time, so that neither a compiler nor Corosync's headers are needed to install Heliograph. This module
knows C and nothing of Heliograph but its errors; what the calls mean together is in `corosync.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from heliograph.model.errors import Unavailable

_DECLARATIONS: Final = """
    typedef uint64_t cpg_handle_t;
    struct cpg_name { uint32_t length; char value[128]; };
    struct cpg_address { uint32_t nodeid; uint32_t pid; uint32_t reason; };
    struct cpg_ring_id { uint32_t nodeid; uint64_t seq; };
    struct iovec { void *iov_base; size_t iov_len; };
    typedef void (*cpg_deliver_fn_t)(cpg_handle_t, const struct cpg_name *, uint32_t, uint32_t, void *, size_t);
    typedef void (*cpg_confchg_fn_t)(cpg_handle_t, const struct cpg_name *,
        const struct cpg_address *, size_t, const struct cpg_address *, size_t, const struct cpg_address *, size_t);
    typedef void (*cpg_totem_confchg_fn_t)(cpg_handle_t, struct cpg_ring_id, uint32_t, const uint32_t *);
    typedef struct {
        int model;
        cpg_deliver_fn_t cpg_deliver_fn;
        cpg_confchg_fn_t cpg_confchg_fn;
        cpg_totem_confchg_fn_t cpg_totem_confchg_fn;
        unsigned int flags;
    } cpg_model_v1_data_t;
    int cpg_model_initialize(cpg_handle_t *, int, cpg_model_v1_data_t *, void *);
    int cpg_finalize(cpg_handle_t);
    int cpg_fd_get(cpg_handle_t, int *);
    int cpg_local_get(cpg_handle_t, unsigned int *);
    int cpg_max_atomic_msgsize_get(cpg_handle_t, uint32_t *);
    int cpg_dispatch(cpg_handle_t, int);
    int cpg_join(cpg_handle_t, const struct cpg_name *);
    int cpg_leave(cpg_handle_t, const struct cpg_name *);
    int cpg_mcast_joined(cpg_handle_t, int, const struct iovec *, unsigned int);
"""
_LIBRARY: Final = "libcpg.so.4"
_MODEL_V1: Final = 1
_DELIVER_INITIAL_RING: Final = 1
_DISPATCH_ONE_NONBLOCKING: Final = 4
_AGREED: Final = 2
_OK: Final = 1
_TRY_AGAIN: Final = 6

_NOT_ADMITTED: Final = (
    "corosync does not admit this user: run as root, or add `uidgid { uid: USER }` to a file in"
    " /etc/corosync/uidgid.d and restart corosync"
)
# What the library answers, in words; others are shown by their number.
_ANSWERS: Final = {
    2: "the connection to corosync is gone",
    9: "the connection to corosync is gone",
    11: _NOT_ADMITTED,
    13: "the channel's name is too long",
    14: "this process has entered that channel already",
    26: "the message is too large",
    100: _NOT_ADMITTED,
}
_NOT_RUNNING: Final = (
    "corosync does not run on this host: start it (systemctl start corosync); `helio cluster init` writes its"
    " configuration"
)
# And what that means when nobody has been reached yet.
_UNREACHABLE: Final = {
    2: _NOT_RUNNING,
    6: "corosync is still starting on this host: try again",
    9: _NOT_RUNNING,
    12: "the corosync of this host cannot share memory with this process: it runs in namespaces of its own, as that"
    " of `helio cluster dev` does",
}

# (node id, process id, reason)
Address = tuple[int, int, int]


class GroupCallbacks(Protocol):
    """Who hears what happens in a group. Called inside `dispatch_one`."""

    def delivered(self, node: int, process: int, message: memoryview) -> None:
        """The view is good until this returns."""

    def group_changed(self, members: list[Address], left: list[Address], joined: list[Address]) -> None: ...

    def ring_changed(self, node: int, sequence: int) -> None: ...


class _Deaf:
    """Who only wants to know whether anybody answers."""

    def delivered(self, node: int, process: int, message: memoryview) -> None: ...

    def group_changed(self, members: list[Address], left: list[Address], joined: list[Address]) -> None: ...

    def ring_changed(self, node: int, sequence: int) -> None: ...


class _Library:
    """The loaded library. There is one per process."""

    loaded: _Library | None = None

    def __init__(self) -> None:
        try:
            from cffi import FFI
        except ImportError:
            sentence = "the Corosync bus needs cffi: pip install 'heliograph[cluster]'"
            raise Unavailable(sentence, code="bus-unavailable") from None
        self.ffi: Any = FFI()
        self.ffi.cdef(_DECLARATIONS)
        try:
            self.calls: Any = self.ffi.dlopen(_LIBRARY)
        except OSError:
            sentence = f"{_LIBRARY} is not installed: install corosync (Debian: apt install corosync)"
            raise Unavailable(sentence, code="bus-unavailable") from None

    @classmethod
    def load(cls) -> _Library:
        if cls.loaded is None:
            cls.loaded = cls()
        return cls.loaded


class CpgHandle:
    """A connection to the local corosync, for one group."""

    def __init__(self, group: str, callbacks: GroupCallbacks) -> None:
        """Raises Unavailable `bus-unavailable` if there is no library, or nobody answers."""
        library = _Library.load()
        self._ffi, self._calls = library.ffi, library.calls
        self._callbacks = callbacks
        self._failure: BaseException | None = None
        # C keeps only addresses: everything it may still use is held here.
        self._model = self._model_data()
        self._name = self._ffi.new(
            "struct cpg_name *", {"length": len(group.encode()), "value": group.encode()}
        )
        self._message = self._ffi.new("struct iovec *")
        handle = self._ffi.new("cpg_handle_t *")
        answer = self._calls.cpg_model_initialize(handle, _MODEL_V1, self._model, self._ffi.NULL)
        if answer != _OK:
            raise Unavailable(_UNREACHABLE.get(answer) or _in_words(answer), code="bus-unavailable")
        self._handle = handle[0]

    @staticmethod
    def check_library() -> None:
        """Raises Unavailable `bus-unavailable` if there is no library."""
        _Library.load()

    @classmethod
    def check(cls) -> None:
        """Raises Unavailable `bus-unavailable`, with a sentence, if no group can be joined now."""
        cls("", _Deaf()).close()

    # ---- calls

    @property
    def descriptor(self) -> int:
        """Readable when there is something to dispatch."""
        descriptor = self._ffi.new("int *")
        self._check(self._calls.cpg_fd_get(self._handle, descriptor))
        return int(descriptor[0])

    @property
    def node(self) -> int:
        number = self._ffi.new("unsigned int *")
        self._check(self._calls.cpg_local_get(self._handle, number))
        return int(number[0])

    def join(self) -> bool:
        """False: try again."""
        return self._check(self._calls.cpg_join(self._handle, self._name))

    def leave(self) -> bool:
        """False: try again."""
        return self._check(self._calls.cpg_leave(self._handle, self._name))

    def multicast(self, message: bytearray) -> bool:
        """False: the bus has no room now, try again."""
        pinned = self._ffi.from_buffer(message)
        self._message.iov_base = pinned
        self._message.iov_len = len(message)
        return self._check(self._calls.cpg_mcast_joined(self._handle, _AGREED, self._message, 1))

    def dispatch_one(self) -> bool:
        """Hand one event to the callbacks. False: there was none."""
        return self._check(self._calls.cpg_dispatch(self._handle, _DISPATCH_ONE_NONBLOCKING))

    def take_failure(self) -> BaseException | None:
        """What a callback raised, once: no exception can pass through C."""
        failure, self._failure = self._failure, None
        return failure

    def close(self) -> None:
        self._calls.cpg_finalize(self._handle)

    def _check(self, answer: int) -> bool:
        if answer == _OK:
            return True
        if answer == _TRY_AGAIN:
            return False
        raise Unavailable(_in_words(answer), code="bus-lost")

    # ---- callbacks

    def _model_data(self) -> Any:
        callback = self._callback
        self._kept = (
            callback("cpg_deliver_fn_t", self._deliver),
            callback("cpg_confchg_fn_t", self._change),
            callback("cpg_totem_confchg_fn_t", self._change_ring),
        )
        return self._ffi.new("cpg_model_v1_data_t *", (_MODEL_V1, *self._kept, _DELIVER_INITIAL_RING))

    def _callback(self, kind: str, function: Callable[..., None]) -> Any:
        return self._ffi.callback(kind, function, onerror=self._failed)

    def _failed(self, kind: type[BaseException], failure: BaseException, traceback: Any) -> None:
        self._failure = failure

    def _deliver(self, handle: int, name: Any, node: int, process: int, message: Any, length: int) -> None:
        with memoryview(self._ffi.buffer(message, length)) as view:
            self._callbacks.delivered(node, process, view)

    def _change(
        self, handle: int, name: Any, members: Any, m: int, left: Any, gone: int, joined: Any, came: int
    ) -> None:
        self._callbacks.group_changed(
            _addresses(members, m), _addresses(left, gone), _addresses(joined, came)
        )

    def _change_ring(self, handle: int, ring: Any, count: int, members: Any) -> None:
        self._callbacks.ring_changed(ring.nodeid, ring.seq)


def _addresses(array: Any, count: int) -> list[Address]:
    return [(array[at].nodeid, array[at].pid, array[at].reason) for at in range(count)]


def _in_words(answer: int) -> str:
    return _ANSWERS.get(answer, f"libcpg answered {answer}")
