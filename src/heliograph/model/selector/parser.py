"""Tokens become a tree, by precedence: OR, AND, NOT, comparison, sum, product, sign.

A selector comes from outside and may be hostile: its nesting and its number of terms are bounded, so that
neither this recursion nor Python's compiler behind it can run out of stack.

JMS wants an identifier before IN, LIKE and IS NULL, and a literal pattern. Beyond JMS, IN takes numbers too.
"""

from __future__ import annotations

from typing import Final

from heliograph.model.limits import MAX_SELECTOR_DEPTH, MAX_SELECTOR_TERMS
from heliograph.model.selector import lexer
from heliograph.model.selector.faults import TOO_COMPLEX, SelectorFault
from heliograph.model.selector.lexer import END, NUMBER, STRING, Token
from heliograph.model.selector.like import parse_like
from heliograph.model.selector.tree import (
    Absence,
    All,
    Arithmetic,
    Comparison,
    Condition,
    Either,
    Identifier,
    Likeness,
    Literal,
    Membership,
    Not,
    Value,
)

_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_COMPARISON: Final = 4
_SUM: Final = 5
_PRODUCT: Final = 6
_SIGN: Final = 7
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_POWERS: Final = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys((*_COMPARISONS, "NOT", "BETWEEN", "IN", "LIKE", "IS"), _COMPARISON),
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
}
# JMS 2.0, 3.8.1.1 admits six header fields. A property cannot have the name of another one.
_OTHER_HEADERS: Final = ("JMSDestination", "JMSExpiration", "JMSReplyTo", "JMSRedelivered", "JMSDeliveryTime")

_Node = Condition | Value


def parse_tokens(tokens: list[Token]) -> Condition:
    """The tree of a whole selector. Raises SelectorFault."""
    return _Parser(tokens).parse()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._terms = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _expect(self, kind: str, what: str) -> Token:
        if self._token.kind != kind:
            raise _unexpected(self._token, what)
        return self._advance()

    def parse(self) -> Condition:
        start = self._token
        tree = _condition(self._expression(_OR), start)
        if self._token.kind != END:
            raise _unexpected(self._token, "AND, OR or the end")
        return tree

    def _expression(self, lowest: int) -> _Node:
        """An operand and the operators behind it that bind at least as tightly as `lowest`."""
        start = self._token
        left = self._operand(lowest)
        while (power := _POWERS.get(self._token.kind, 0)) >= lowest:
            if power <= _AND:
                left = self._logic(left, start, power)
            elif power == _COMPARISON:
                left = self._comparison(left, start)
            else:
                left = self._arithmetic(left, start, power)
        return left

    def _operand(self, lowest: int) -> _Node:
        token = self._advance()
        match token.kind:
            case "(":
                # Inside a sum only a value makes sense, so an AND is refused where it stands.
                inner = self._nested(token, _SUM if lowest >= _SUM else _OR)
                self._expect(")", "an operator or )")
                return inner
            case "NOT":
                start = self._token
                return Not(_condition(self._nested(token, _NOT), start))
            case "+" | "-":
                return self._signed(token)
            case lexer.IDENTIFIER:
                return self._identifier(token)
            case lexer.STRING | lexer.NUMBER:
                self._count(token)
                return Literal(token.value)
            case "TRUE" | "FALSE":
                self._count(token)
                return Literal(token.kind == "TRUE")
            case "NULL":
                raise SelectorFault("NULL is asked for with IS NULL or IS NOT NULL", column=token.column)
            case _:
                raise _unexpected(token, "a value")

    def _nested(self, token: Token, lowest: int) -> _Node:
        self._depth += 1
        if self._depth > MAX_SELECTOR_DEPTH:
            raise _too_deep(token)
        inner = self._expression(lowest)
        self._depth -= 1
        return inner

    def _signed(self, token: Token) -> Value:
        start = self._token
        operand = _value(self._nested(token, _SIGN), start)
        if isinstance(operand, Literal) and type(operand.value) in (int, float):
            assert not isinstance(operand.value, str)
            return Literal(-operand.value) if token.kind == "-" else operand
        return self._shallow(Arithmetic(token.kind, Literal(0), operand), token)

    def _identifier(self, token: Token) -> Identifier:
        self._count(token)
        if token.text in _OTHER_HEADERS:
            raise SelectorFault(f"messages cannot be selected by {token.text}", column=token.column)
        return Identifier(token.text)

    def _count(self, token: Token) -> None:
        self._terms += 1
        if self._terms > MAX_SELECTOR_TERMS:
            raise SelectorFault(
                f"it has more than {MAX_SELECTOR_TERMS} identifiers and literals",
                column=token.column,
                code=TOO_COMPLEX,
            )

    def _logic(self, left: _Node, start: Token, power: int) -> Condition:
        """All terms of one chain in one node, however long: a chain must not count as nesting."""
        keyword = self._token.kind
        terms = [_condition(left, start)]
        while self._token.kind == keyword:
            self._advance()
            start = self._token
            terms.append(_condition(self._expression(power + 1), start))
        return All(tuple(terms)) if power == _AND else Either(tuple(terms))

    def _arithmetic(self, left: _Node, start: Token, power: int) -> Value:
        operator = self._advance()
        right_start = self._token
        right = _value(self._expression(power + 1), right_start)
        return self._shallow(Arithmetic(operator.kind, _value(left, start), right), operator)

    def _shallow(self, made: Arithmetic, token: Token) -> Arithmetic:
        if made.depth > MAX_SELECTOR_DEPTH:
            raise _too_deep(token)
        return made

    def _comparison(self, left: _Node, start: Token) -> Condition:
        operator = self._advance()
        if operator.kind in _COMPARISONS:
            return Comparison(operator.kind, _value(left, start), self._side())
        if operator.kind == "IS":
            negated = self._negation()
            self._expect("NULL", "NULL or NOT NULL")
            return _negated_if(negated, Absence(_only_identifier(left, start, operator)))
        negated = operator.kind == "NOT"
        if negated:
            operator = self._advance()
        match operator.kind:
            case "BETWEEN":
                return _negated_if(negated, self._between(_value(left, start)))
            case "IN":
                return _negated_if(negated, self._membership(_only_identifier(left, start, operator)))
            case "LIKE":
                return _negated_if(negated, self._likeness(_only_identifier(left, start, operator)))
            case _:
                raise _unexpected(operator, "BETWEEN, IN or LIKE")

    def _negation(self) -> bool:
        negated = self._token.kind == "NOT"
        if negated:
            self._advance()
        return negated

    def _side(self) -> Value:
        start = self._token
        return _value(self._expression(_SUM), start)

    def _between(self, middle: Value) -> Condition:
        low = self._side()
        self._expect("AND", "AND")
        return All((Comparison(">=", middle, low), Comparison("<=", middle, self._side())))

    def _membership(self, identifier: Identifier) -> Condition:
        self._expect("(", "( and a list")
        values = [self._member()]
        while self._token.kind == ",":
            self._advance()
            column = self._token.column
            values.append(self._member())
            if isinstance(values[-1], str) != isinstance(values[0], str):
                raise SelectorFault("a list has only strings or only numbers", column=column)
        self._expect(")", "a comma or )")
        return Membership(identifier, tuple(values))  # type: ignore[arg-type]  # all alike: checked above

    def _member(self) -> str | int | float:
        sign = self._advance().kind if self._token.kind in ("+", "-") else ""
        token = self._token
        if token.kind != NUMBER and (sign or token.kind != STRING):
            raise _unexpected(token, "a number" if sign else "a string or a number")
        self._count(self._advance())
        return -token.value if sign == "-" and not isinstance(token.value, str) else token.value

    def _likeness(self, identifier: Identifier) -> Condition:
        pattern = self._expect(STRING, "a pattern in single quotes")
        self._count(pattern)
        escape: str | None = None
        if self._token.kind == "ESCAPE":
            self._advance()
            token = self._expect(STRING, "one character in single quotes")
            escape = str(token.value)
            if len(escape) != 1:
                raise SelectorFault("ESCAPE takes exactly one character", column=token.column)
        try:
            return Likeness(identifier, parse_like(str(pattern.value), escape))
        except ValueError as fault:
            raise SelectorFault(str(fault), column=pattern.column) from None


def _negated_if(negated: bool, condition: Condition) -> Condition:
    return Not(condition) if negated else condition


def _condition(node: _Node, start: Token) -> Condition:
    """Refuse what can be neither true nor false."""
    if isinstance(node, Arithmetic) or (isinstance(node, Literal) and type(node.value) is not bool):
        raise SelectorFault("a condition is needed here, and this is a value", column=start.column)
    return node


def _value(node: _Node, start: Token) -> Value:
    if isinstance(node, Literal | Identifier | Arithmetic):
        return node
    raise SelectorFault("a value is needed here, and this is a condition", column=start.column)


def _only_identifier(node: _Node, start: Token, operator: Token) -> Identifier:
    if isinstance(node, Identifier):
        return node
    raise SelectorFault(f"{operator.kind} asks about a header or a property by its name", column=start.column)


def _unexpected(token: Token, wanted: str) -> SelectorFault:
    found = "the end" if token.kind == END else token.text if len(token.text) <= 40 else token.text[:40] + "…"
    return SelectorFault(f"expected {wanted}, found {found}", column=token.column)


def _too_deep(token: Token) -> SelectorFault:
    return SelectorFault(
        f"it is nested more than {MAX_SELECTOR_DEPTH} deep", column=token.column, code=TOO_COMPLEX
    )
