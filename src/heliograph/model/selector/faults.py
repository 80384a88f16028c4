"""How a selector is refused: with the column of the fault, when the consumer is made."""

from __future__ import annotations

from typing import Final

from heliograph.model.errors import ClientFault

TOO_COMPLEX: Final = "selector-too-complex"


class SelectorFault(ClientFault):
    """A selector that cannot be understood, or is larger than any honest one."""

    default_code = "selector-invalid"

    def __init__(self, sentence: str, *, column: int = 0, code: str | None = None) -> None:
        """`column` counts characters from 1; 0 where the sentence alone came over the wire."""
        where = f"the selector cannot be used, column {column}: " if column else ""
        super().__init__(where + sentence, code=code)
        self.column = column
