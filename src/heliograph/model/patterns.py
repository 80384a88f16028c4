"""Patterns over topic names, for subscriptions to topics that exist and to those that are yet to come (M12).

A subscriber says which kind of pattern it means:

    topic:glob:prices.*                  `*` any characters, dots among them; `?` one; the whole name
    topic:regex:^prices\\.(eu|us)$        RE2 syntax; found anywhere in the name unless anchored

Both become RE2 automata: matching takes time linear in the name, whatever the pattern. Names that begin with
`_` belong to the server (M11); a pattern reaches them only when it spells the `_` out at its beginning.
"""

from __future__ import annotations

import enum
import re
from typing import Any, Final

import re2

from heliograph.model.destination import PATTERNS, Address, Kind, at_sub_cluster
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_AUTOMATON_BYTES, MAX_GLOB_BYTES, MAX_REGEX_BYTES

_WILD: Final = re.compile(r"[*?]")
_ESCAPE: Final = re.compile(r"\\(.)")
# Letters that stand for themselves, without one that what follows it says how often it comes.
_LITERALS: Final = re.compile(r"(?:(?:[^\\.^$*+?{}()\[\]|]|\\[^A-Za-z0-9])(?![*?{+]))*")


class Form(enum.StrEnum):
    """What the text of a pattern means."""

    GLOB = "glob"
    REGEX = "regex"


class PatternFault(ClientFault):
    """A pattern that cannot be used. `position` counts characters of the pattern from 1; 0: not known."""

    default_code = "pattern-invalid"

    def __init__(self, sentence: str, *, position: int = 0, code: str | None = None) -> None:
        super().__init__(sentence, code=code)
        self.position = position


class Pattern:
    """Which topics a wildcard subscription means. Patterns are equal that are written alike."""

    __slots__ = ("_found", "_reserved", "form", "kind", "text")

    def __init__(self, form: Form, text: str, kind: Kind = Kind.TOPIC) -> None:
        """Raises PatternFault."""
        _check_text(form, text)
        self.kind = kind
        self.form = form
        self.text = text
        if form is Form.GLOB:
            self._found = compile_glob(text).fullmatch
            self._reserved = text.startswith("_")
        else:
            self._found = _compile(text).search
            self._reserved = text.startswith(("_", "^_"))

    @classmethod
    def glob(cls, text: str) -> Pattern:
        return cls(Form.GLOB, text)

    @classmethod
    def regex(cls, text: str) -> Pattern:
        return cls(Form.REGEX, text)

    def matches(self, address: str) -> bool:
        """Whether an address is a topic that the pattern means. It is not checked whether it exists."""
        kind, _, name = address.partition(":")
        if kind != self.kind or (name.startswith("_") and not self._reserved):
            return False
        return self._found(name) is not None

    @property
    def is_reserved(self) -> bool:
        """Whether it may mean names that belong to the server."""
        return self._reserved

    @property
    def beginning(self) -> str:
        """What every name that it means begins with, as far as can be seen without trying."""
        if self.form is Form.GLOB:
            return glob_beginning(self.text)
        if not self.text.startswith("^") or "|" in self.text:
            return ""
        found = _LITERALS.match(self.text, 1)
        assert found is not None, "no letters are found, too"
        return _ESCAPE.sub(r"\1", found[0])

    def __str__(self) -> str:
        """As a client writes it."""
        return f"{self.kind}:{self.form}:{self.text}"

    def __repr__(self) -> str:
        return f"Pattern.{self.form}({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def parse_pattern(address: str, *, of_queues: bool = False) -> Pattern | None:
    """The pattern that an address stands for, or None for an address that names one destination.

    `of_queues`: the server looks for queues; nobody receives from several. Raises PatternFault.
    """
    kind, _, rest = address.partition(":")
    form, colon, text = rest.partition(":")
    if not colon or form not in tuple(Form) or kind not in tuple(Kind):
        return None
    if kind != Kind.TOPIC and not of_queues:
        raise PatternFault(f"patterns are for topics: write topic:{form}:PATTERN, not {kind}:{form}:")
    return Pattern(Form(form), text, Kind(kind))


SEPARATOR: Final = " → "
"""Between the name of a subscription to a pattern, the pattern, and the topic at which a subscription is part
of it."""


def no_such_subscription(name: str) -> str:
    """What is said of one that is not there, and of one that is somebody else's: the same."""
    return f"there is no durable subscription {name!r} of this client"


def name_at(subscription: str, address: str) -> str:
    """What a named subscription to a pattern is called at one of its topics; where it is written down, as it is."""
    return (
        subscription
        if at_sub_cluster(Address(address))[0] == PATTERNS
        else f"{subscription}{SEPARATOR}{address}"
    )


def pattern_in(subscription: str) -> Pattern | None:
    """The pattern in the name of a subscription that is written down."""
    return parse_pattern(subscription.rpartition(SEPARATOR)[2])


def glob_beginning(text: str) -> str:
    """What everything begins with that a glob matches."""
    return _WILD.split(text, maxsplit=1)[0]


def compile_glob(text: str) -> Any:
    """A glob as an RE2 automaton, for `fullmatch`."""
    return _compile("".join(_GLOB.get(letter) or re2.escape(letter) for letter in text))


_GLOB: Final = {"*": ".*", "?": "."}


def compile_regex(text: str) -> Any:
    """A regular expression in RE2's syntax, for `search`. Raises PatternFault, with the position of the fault."""
    if len(text.encode()) > MAX_REGEX_BYTES:
        raise PatternFault(f"a pattern has at most {MAX_REGEX_BYTES} bytes, this one {len(text.encode())}")
    return _compile(text)


def linear_options() -> Any:
    """How expressions are compiled, for who puts many of them into one automaton."""
    return _options()


def _check_text(form: Form, text: str) -> None:
    limit = MAX_GLOB_BYTES if form is Form.GLOB else MAX_REGEX_BYTES
    if not text:
        raise PatternFault(f"the pattern is empty: write topic:{form}:PATTERN")
    # A lone half of a surrogate pair is not printable, so what passes can be encoded.
    for position, letter in enumerate(text, 1):
        if not letter.isprintable():
            raise PatternFault(
                f"a pattern has printable characters only; the one at position {position} is not",
                position=position,
            )
    if len(text.encode()) > limit:
        raise PatternFault(f"a {form} pattern has at most {limit} bytes, this one {len(text.encode())}")


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False  # RE2 would write to standard error
    options.never_capture = True
    options.dot_nl = True
    options.max_mem = MAX_AUTOMATON_BYTES
    return options


def _compile(expression: str) -> Any:
    try:
        return re2.compile(expression, _options())
    except re2.error as fault:
        reason = fault.args[0] if fault.args else "it cannot be compiled"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        position = _position(expression, reason)
        where = f" at position {position}" if position else ""
        raise PatternFault(f"the pattern is wrong{where}: {reason}", position=position) from None


# Longer ones are not tried piece by piece: each try is a compilation.
_SHORT_PATTERN: Final = 128


def _position(expression: str, reason: str) -> int:
    """RE2 names the piece it could not take; where that occurs once, and is not all, we know the place. Otherwise
    it is behind the longest beginning that is right by itself."""
    piece = reason.partition(": ")[2]
    if piece and not (piece == expression and len(piece) > 1) and expression.count(piece) == 1:
        return expression.index(piece) + 1
    if len(expression) > _SHORT_PATTERN:
        return 0
    for length in range(len(expression) - 1, 0, -1):
        try:
            re2.compile(expression[:length], _options())
        except re2.error:
            continue
        return length + 1
    return 1
