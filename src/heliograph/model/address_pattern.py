"""Globs over whole addresses, by which rules name destinations: `queue:orders.*`, `topic:*`, `*:a?c`, `*`.

`*` stands for any characters and `?` for one. Names that begin with `_` belong to the server (M11); a pattern
reaches them only when it spells the `_` out.
"""

from __future__ import annotations

from heliograph.model.destination import Kind
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_ADDRESS_PATTERN_BYTES
from heliograph.model.patterns import Form, Pattern, compile_glob, glob_beginning


class AddressPattern:
    """Which destinations a rule is for. Matching is linear in the address, whatever the pattern."""

    __slots__ = ("_found", "_names_reserved", "text")

    def __init__(self, text: str) -> None:
        """Raises ClientFault `pattern-invalid`."""
        kind, colon, name = text.partition(":")
        if text != "*" and (kind not in (*Kind, "*") or not colon or not name):
            raise _refuse(
                "is written queue:NAME, topic:NAME, *:NAME or *, where * in NAME stands for any characters"
                f" and ? for one; not {text[:60]!r}"
            )
        if len(text.encode(errors="replace")) > MAX_ADDRESS_PATTERN_BYTES or not text.isprintable():
            raise _refuse(f"has at most {MAX_ADDRESS_PATTERN_BYTES} bytes, all printable: {text[:60]!r}")
        self.text = text
        self._found = compile_glob(text).fullmatch
        self._names_reserved = name.startswith("_")

    def matches(self, address: str) -> bool:
        if is_reserved(address) and not self._names_reserved:
            return False
        return self._found(address) is not None

    def covers(self, pattern: Pattern) -> bool:
        """Whether it surely matches every topic that a subscriber's pattern can mean."""
        if pattern.is_reserved:
            return False
        if pattern.form is Form.GLOB and self.text == f"{pattern.kind}:{pattern.text}":
            return True
        return self.text.endswith("*") and self.matches(f"{pattern.kind}:{pattern.beginning}")

    def meets(self, pattern: Pattern) -> bool:
        """Whether there might be a topic that it matches and that a subscriber's pattern means, as far as can be seen
        from how both begin."""
        kind, _, name = self.text.partition(":")
        if kind not in ("*", pattern.kind) or (
            pattern.beginning.startswith("_") and not self._names_reserved
        ):
            return False
        own = glob_beginning(name)
        if own == name and name:
            return pattern.matches(f"{pattern.kind}:{name}")
        return own.startswith(pattern.beginning) or pattern.beginning.startswith(own)


def is_reserved(address: str) -> bool:
    """Whether the address has a name that belongs to the server."""
    return address.partition(":")[2].startswith("_")


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(f"a pattern {sentence}", code="pattern-invalid")
