"""What the corosync of this host knows of the others: who is configured, who is there, and whether there is a key.

Read through libcmap, loaded at run time as libcpg is (`cpg.py`). Nobody depends on it: a host whose corosync does not
tell is one about which nothing is said.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec

from heliograph.bus.namespaces import inside

_DECLARATIONS: Final = """
    typedef uint64_t cmap_handle_t;
    typedef uint64_t cmap_iter_handle_t;
    int cmap_initialize(cmap_handle_t *);
    int cmap_finalize(cmap_handle_t);
    int cmap_get_string(cmap_handle_t, const char *, char **);
    int cmap_get_uint32(cmap_handle_t, const char *, uint32_t *);
    int cmap_iter_init(cmap_handle_t, const char *, cmap_iter_handle_t *);
    int cmap_iter_next(cmap_handle_t, cmap_iter_handle_t, char *, size_t *, int *);
    int cmap_iter_finalize(cmap_handle_t, cmap_iter_handle_t);
    void free(void *);
"""
_LIBRARY: Final = "libcmap.so.4"
_OK: Final = 1
_KEY_BYTES: Final = 256
_NODE = re.compile(r"nodelist\.node\.(\d+)\.nodeid")
_DEFAULT_KEY_FILE: Final = "/etc/corosync/authkey"


class RingHost(msgspec.Struct, frozen=True):
    """A host that corosync is configured with."""

    name: str
    address: str
    is_here: bool  # it is in the ring of this host's corosync now


class Ring(msgspec.Struct, frozen=True):
    """The ring as the corosync of this host sees it. `hosts` are the others."""

    hosts: tuple[RingHost, ...]
    key_file: str  # empty: whoever is in the network can join

    @property
    def is_alone(self) -> bool:
        """There should be others, and none of them is heard."""
        return bool(self.hosts) and not any(host.is_here for host in self.hosts)

    @property
    def lacks(self) -> str:
        """What is missing if it is alone, and what to do, in words; otherwise nothing."""
        if not self.is_alone:
            return ""
        others = ", ".join(f"{host.name} ({host.address})" for host in self.hosts)
        sentence = (
            f"other hosts: the corosync of this one is configured with {others} and hears none of them."
            " Start corosync there, and let UDP port 5405 pass between the hosts"
        )
        if self.key_file:
            sentence += (
                f"; if it runs there, the keys differ: compare `sha256sum {self.key_file}` on every host, copy the"
                " right key here and restart corosync"
            )
        return sentence


@cache
def _library() -> tuple[Any, Any] | None:
    try:
        from cffi import FFI

        ffi: Any = FFI()
        ffi.cdef(_DECLARATIONS)
        return ffi, ffi.dlopen(_LIBRARY)
    except (ImportError, OSError):
        return None


def look_at_ring(namespace: str = "") -> Ring | None:
    """None if corosync cannot be asked. `namespace`: it runs in that network namespace."""
    with inside(namespace):
        return _look()


def _look() -> Ring | None:
    library = _library()
    if library is None:
        return None
    ffi, calls = library
    handle = ffi.new("cmap_handle_t *")
    if calls.cmap_initialize(handle) != _OK:
        return None
    try:
        return _Reader(ffi, calls, handle[0]).ring()
    finally:
        calls.cmap_finalize(handle[0])


class _Reader:
    def __init__(self, ffi: Any, calls: Any, handle: int) -> None:
        self._ffi, self._calls, self._handle = ffi, calls, handle

    def ring(self) -> Ring:
        local = self._number("nodelist.local_node_pos")
        hosts = tuple(self._host(position) for position in self._positions() if position != local)
        cipher = self._text("totem.crypto_cipher") or "none"
        secured = cipher != "none" or self._text("totem.secauth") == "on"
        key_file = self._text("totem.keyfile") or _DEFAULT_KEY_FILE
        return Ring(hosts, key_file if secured else "")

    def _host(self, position: int) -> RingHost:
        prefix = f"nodelist.node.{position}"
        address = self._text(f"{prefix}.ring0_addr")
        status = self._text(f"runtime.members.{self._number(f'{prefix}.nodeid')}.status")
        return RingHost(self._text(f"{prefix}.name") or address, address, status == "joined")

    def _positions(self) -> list[int]:
        found = []
        iterator = self._ffi.new("cmap_iter_handle_t *")
        if self._calls.cmap_iter_init(self._handle, b"nodelist.node.", iterator) != _OK:
            return []
        new = self._ffi.new
        name, size, kind = new("char[]", _KEY_BYTES), new("size_t *"), new("int *")
        while self._calls.cmap_iter_next(self._handle, iterator[0], name, size, kind) == _OK:
            if match := _NODE.fullmatch(self._ffi.string(name).decode()):
                found.append(int(match[1]))
        self._calls.cmap_iter_finalize(self._handle, iterator[0])
        return sorted(found)

    def _text(self, key: str) -> str:
        value = self._ffi.new("char **")
        if self._calls.cmap_get_string(self._handle, key.encode(), value) != _OK:
            return ""
        try:
            text: bytes = self._ffi.string(value[0])
            return text.decode(errors="replace")
        finally:
            self._calls.free(value[0])

    def _number(self, key: str) -> int:
        value = self._ffi.new("uint32_t *")
        return int(value[0]) if self._calls.cmap_get_uint32(self._handle, key.encode(), value) == _OK else -1
