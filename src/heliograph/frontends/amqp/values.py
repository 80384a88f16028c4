"""AMQP's types as bytes and back (part 1 of the standard), for messages and for what links say about themselves.

Frames, sessions and links are Proton's; what is inside a message is read here, because each message passes through
it. Python has fewer types than AMQP: where it matters, a reader notes one letter for each value that it met, in
order, and a writer who is given those letters writes the very same types.

    n null   ? boolean   B H I Q ubyte ushort uint ulong   b h i q byte short int long   f d float double
    x y z decimals   c char   t timestamp   u uuid   v binary   s string   k symbol   L list   M map   A array
    D described
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import MAX_AMQP_DEPTH

Notes = list[str]
_Reader = Callable[[bytes, int, Notes | None, int], tuple[Any, int]]


class Symbol(str):
    """A word of a protocol or an application, in ASCII."""

    __slots__ = ()


class Described:
    """A value with a descriptor that says what it means."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value


def malformed(why: str) -> ProtocolFault:
    return ProtocolFault(f"not AMQP: {why}", code="frame-malformed")


# ---- reading


def read(data: bytes, position: int, notes: Notes | None = None, depth: int = 0) -> tuple[Any, int]:
    """The value that begins at a position, and where the next begins. Raises ProtocolFault."""
    try:
        reader = _READERS[data[position]]
    except IndexError:
        raise malformed("it ends too early") from None
    except KeyError:
        raise malformed(f"there is no type {data[position]:#04x}") from None
    return reader(data, position + 1, notes, depth)


def _fixed(letter: str, form: str) -> _Reader:
    unpack = struct.Struct(form).unpack_from
    width = struct.calcsize(form)

    def reader(data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
        try:
            value = unpack(data, position)[0]
        except struct.error:
            raise malformed("it ends too early") from None
        if notes is not None:
            notes.append(letter)
        return value, position + width

    return reader


def _constant(letter: str, value: Any) -> _Reader:
    def reader(_data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
        if notes is not None:
            notes.append(letter)
        return value, position

    return reader


def _sized(letter: str, width: int, convert: Callable[[bytes], Any]) -> _Reader:
    def reader(data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
        start = position + width
        end = start + int.from_bytes(data[position:start], "big")
        if start > len(data) or end > len(data):
            raise malformed("it ends too early")
        if notes is not None:
            notes.append(letter)
        try:
            return convert(data[start:end]), end
        except ValueError:
            raise malformed("a text is not UTF-8, or a symbol not ASCII") from None

    return reader


def _boolean(data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
    if position >= len(data):
        raise malformed("it ends too early")
    if notes is not None:
        notes.append("?")
    return data[position] != 0, position + 1


def _character(data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
    code = int.from_bytes(data[position : position + 4], "big")
    if position + 4 > len(data) or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise malformed("there is no such character")
    if notes is not None:
        notes.append("c")
    return chr(code), position + 4


def _unique(data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
    raw = data[position : position + 16]
    if len(raw) < 16:
        raise malformed("it ends too early")
    if notes is not None:
        notes.append("u")
    return str(uuid.UUID(bytes=raw)), position + 16


def _raw(letter: str, width: int) -> _Reader:
    def reader(data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
        if position + width > len(data):
            raise malformed("it ends too early")
        if notes is not None:
            notes.append(letter)
        return data[position : position + width], position + width

    return reader


def _extent(data: bytes, position: int, width: int, depth: int) -> tuple[int, int, int]:
    """Where the elements of a list, map or array begin and end, and how many there are."""
    start = position + 2 * width
    size = int.from_bytes(data[position : position + width], "big")
    end = position + width + size
    if start > len(data) or end > len(data) or end < start:
        raise malformed("it ends too early")
    if depth >= MAX_AMQP_DEPTH:
        raise malformed(f"values lie in each other more than {MAX_AMQP_DEPTH} deep")
    count = int.from_bytes(data[position + width : start], "big")
    if count > end - start:
        raise malformed("it has more elements than bytes")
    return start, end, count


def _list(width: int) -> _Reader:
    def reader(data: bytes, position: int, notes: Notes | None, depth: int) -> tuple[Any, int]:
        position, end, count = _extent(data, position, width, depth)
        if notes is not None:
            notes.append("L")
        found = []
        for _ in range(count):
            value, position = read(data, position, notes, depth + 1)
            found.append(value)
        if position != end:
            raise malformed("a list has another size than it says")
        return found, end

    return reader


def _empty_list(_data: bytes, position: int, notes: Notes | None, _depth: int) -> tuple[Any, int]:
    if notes is not None:
        notes.append("L")
    return [], position


def _map(width: int) -> _Reader:
    def reader(data: bytes, position: int, notes: Notes | None, depth: int) -> tuple[Any, int]:
        position, end, count = _extent(data, position, width, depth)
        if notes is not None:
            notes.append("M")
        found: dict[Any, Any] = {}
        for _ in range(count // 2):
            key, position = read(data, position, notes, depth + 1)
            value, position = read(data, position, notes, depth + 1)
            if isinstance(key, list | dict | Described) or key in found:
                raise malformed("a map has a key twice, or one that is no simple value")
            found[key] = value
        if position != end:
            raise malformed("a map has another size than it says")
        return found, end

    return reader


def _array(width: int) -> _Reader:
    def reader(data: bytes, position: int, notes: Notes | None, depth: int) -> tuple[Any, int]:
        position, end, count = _extent(data, position, width, depth)
        if notes is not None:
            notes.append("A")
        if position == end and not count:
            return [], end
        descriptor = None
        if position < end and data[position] == 0x00:
            descriptor, position = read(data, position + 1, None, depth + 1)
        element = _READERS.get(data[position]) if position < end else None
        if element is None or element is _described:
            raise malformed("an array has elements of a type that cannot be")
        position += 1
        found = []
        for _ in range(count):
            value, position = element(data, position, notes, depth + 1)
            found.append(value if descriptor is None else Described(descriptor, value))
        if position != end:
            raise malformed("an array has another size than it says")
        return found, end

    return reader


def _described(data: bytes, position: int, notes: Notes | None, depth: int) -> tuple[Any, int]:
    if depth >= MAX_AMQP_DEPTH:
        raise malformed(f"values lie in each other more than {MAX_AMQP_DEPTH} deep")
    if notes is not None:
        notes.append("D")
    descriptor, position = read(data, position, notes, depth + 1)
    value, position = read(data, position, notes, depth + 1)
    return Described(descriptor, value), position


def _utf8(raw: bytes) -> str:
    return raw.decode()


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


_READERS: Final[dict[int, _Reader]] = {
    0x00: _described,
    0x40: _constant("n", None),
    0x41: _constant("?", True),
    0x42: _constant("?", False),
    0x43: _constant("I", 0),
    0x44: _constant("Q", 0),
    0x45: _empty_list,
    0x50: _fixed("B", ">B"),
    0x51: _fixed("b", ">b"),
    0x52: _fixed("I", ">B"),
    0x53: _fixed("Q", ">B"),
    0x54: _fixed("i", ">b"),
    0x55: _fixed("q", ">b"),
    0x56: _boolean,
    0x60: _fixed("H", ">H"),
    0x61: _fixed("h", ">h"),
    0x70: _fixed("I", ">I"),
    0x71: _fixed("i", ">i"),
    0x72: _fixed("f", ">f"),
    0x73: _character,
    0x74: _raw("x", 4),
    0x80: _fixed("Q", ">Q"),
    0x81: _fixed("q", ">q"),
    0x82: _fixed("d", ">d"),
    0x83: _fixed("t", ">q"),
    0x84: _raw("y", 8),
    0x94: _raw("z", 16),
    0x98: _unique,
    0xA0: _sized("v", 1, bytes),
    0xA1: _sized("s", 1, _utf8),
    0xA3: _sized("k", 1, _symbol),
    0xB0: _sized("v", 4, bytes),
    0xB1: _sized("s", 4, _utf8),
    0xB3: _sized("k", 4, _symbol),
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}


def read_whole(data: bytes) -> Any:
    """The one value that the bytes are. Raises ProtocolFault."""
    value, end = read(data, 0)
    if end != len(data):
        raise malformed("there is something behind it")
    return value


# ---- writing

NULL: Final = b"\x40"
_packers: Final = {
    letter: (code, struct.Struct(form).pack)
    for letter, code, form in (
        ("B", b"\x50", ">B"),
        ("H", b"\x60", ">H"),
        ("I", b"\x70", ">I"),
        ("Q", b"\x80", ">Q"),
        ("b", b"\x51", ">b"),
        ("h", b"\x61", ">h"),
        ("i", b"\x71", ">i"),
        ("q", b"\x81", ">q"),
        ("f", b"\x72", ">f"),
        ("d", b"\x82", ">d"),
        ("t", b"\x83", ">q"),
    )
}
_RAW: Final = {"x": (b"\x74", 4), "y": (b"\x84", 8), "z": (b"\x94", 16)}
_VARIABLE: Final = {"v": (b"\xa0", b"\xb0"), "s": (b"\xa1", b"\xb1"), "k": (b"\xa3", b"\xb3")}


_USUAL: Final[dict[type, str]] = {
    str: "s",
    Symbol: "k",
    type(None): "n",
    bool: "?",
    float: "d",
    bytes: "v",
    dict: "M",
    list: "L",
    Described: "D",
}


def letter_of(value: Any) -> str:
    """The type that a value has where nobody noted one."""
    kind = type(value)
    if kind is int:
        return "i" if -(2**31) <= value < 2**31 else "q" if value < 2**63 else "Q"
    return _USUAL.get(kind, "L")


def usual_notes(value: Any, notes: Notes) -> Notes:
    """The letters that a value has where nobody noted any."""
    letter = letter_of(value)
    notes.append(letter)
    if letter == "L":
        for each in value:
            usual_notes(each, notes)
    elif letter == "M":
        for key, each in value.items():
            usual_notes(key, notes)
            usual_notes(each, notes)
    elif letter == "D":
        usual_notes(value.descriptor, notes)
        usual_notes(value.value, notes)
    return notes


def write(value: Any, notes: Iterator[str] | None = None) -> bytes:
    """As the types that were noted, or the usual ones. What does not fit its note is written as usual."""
    letter = letter_of(value) if notes is None else next(notes, "")
    try:
        return _write_as(letter, value, notes)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return _write_as(letter_of(value), value, None)


def _write_as(letter: str, value: Any, notes: Iterator[str] | None) -> bytes:
    if letter in _VARIABLE:
        return variable(letter, value)
    if letter in _packers:
        code, pack = _packers[letter]
        return code + pack(value)
    if letter == "n" and value is None:
        return NULL
    if letter == "?" and isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if letter == "c":
        return b"\x73" + ord(value).to_bytes(4, "big")
    if letter == "u":
        return b"\x98" + uuid.UUID(value).bytes
    if letter in _RAW:
        code, width = _RAW[letter]
        if len(value) != width:
            raise ValueError(letter)
        return code + bytes(value)
    return _write_compound(letter, value, notes)


def _write_compound(letter: str, value: Any, notes: Iterator[str] | None) -> bytes:
    if letter == "L":
        return compound(0xC0, len(value), b"".join([write(each, notes) for each in value]))
    if letter == "M":
        parts = [write(each, notes) for pair in value.items() for each in pair]
        return compound(0xC1, len(parts), b"".join(parts))
    if letter == "A":
        return array([write(each, notes) for each in value])
    if letter == "D":
        descriptor, inner = (value.descriptor, value.value) if isinstance(value, Described) else value
        return b"\x00" + write(descriptor, notes) + write(inner, notes)
    raise KeyError(letter)


def variable(letter: str, value: str | bytes) -> bytes:
    raw = value.encode(errors="replace") if isinstance(value, str) else bytes(value)
    short, long = _VARIABLE[letter]
    size = len(raw)
    return short + bytes((size,)) + raw if size < 256 else long + size.to_bytes(4, "big") + raw


def compound(code: int, count: int, elements: bytes) -> bytes:
    """A list (0xC0), map (0xC1) or array (0xE0)."""
    size = len(elements)
    if size < 255 and count < 256:
        return bytes((code, size + 1, count)) + elements
    return b"".join(
        (bytes((code + 0x10,)), (size + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), elements)
    )


def array(elements: list[bytes]) -> bytes:
    """Of elements that are all of one type. Their constructor is written once, so they must have the same; texts are
    brought to the long form."""
    if not elements:
        return compound(0xE0, 0, b"\x40")
    if len({each[0] for each in elements}) > 1:
        elements = [_long_form(each) for each in elements]
    if len({each[0] for each in elements}) > 1:
        raise ValueError("elements of an array are of one type")
    return compound(0xE0, len(elements), elements[0][:1] + b"".join([each[1:] for each in elements]))


def _long_form(element: bytes) -> bytes:
    code = element[0]
    if code in (0xA0, 0xA1, 0xA3):
        return bytes((code + 0x10,)) + len(element[2:]).to_bytes(4, "big") + element[2:]
    if code in (0x41, 0x42):
        return b"\x56\x01" if code == 0x41 else b"\x56\x00"
    return element


def fields(descriptor: int, encoded: list[bytes]) -> bytes:
    """A described list, whose last fields are left out where they are null."""
    while encoded and encoded[-1] == NULL:
        encoded.pop()
    if not encoded:
        return bytes((0x00, 0x53, descriptor, 0x45))
    return bytes((0x00, 0x53, descriptor)) + compound(0xC0, len(encoded), b"".join(encoded))
