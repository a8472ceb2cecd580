"""Parses an expression of Spark's SQL into a tree: the part of the language that is evaluated
without Spark. [RC2]

Pure. What it does not know is `NotUnderstoodError`, never a guess: Spark reads the text then. Not
here: names, types and meaning (core.filter.sql_expression).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from ...errors import UsageError
from ..schema.fields import MAX_PRECISION

_MAX_DEPTH = 100  # of nested parentheses, functions and NOTs
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?P<suffix>[A-Za-z_]\w*)?)
  | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><=>|<>|!=|<=|>=|==|\|\||[=<>+\-*/(),.!])
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_COMPARISONS = {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<=>": "<=>"} | {
    sign: sign for sign in ("<", "<=", ">", ">=")
}
_WORDS = {
    *("and", "or", "not", "in", "like", "between", "is", "null", "true", "false", "case", "when"),
    *("then", "else", "end", "distinct", "from", "select", "exists", "interval", "any", "all"),
    *("some", "escape", "rlike", "ilike", "regexp", "div"),
}
_INTEGERS = (("integer", 31), ("long", 63))
_BETWEEN_VALUES = {*_COMPARISONS, "/", "||", ",", ".", ")"}  # no expression starts with one


class NotUnderstoodError(UsageError):
    """A text in SQL has a part that only Spark understands, or none does."""


class IncompleteError(UsageError):
    """A text in SQL lacks a part, a quote or a parenthesis, or is no condition where one is
    expected: no program reads it."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value and the name of its type; "void": null without a type."""

    value: Any
    type: str


@dataclass(frozen=True, slots=True)
class Name:
    """A column, or a member of one."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function, by its name in lower case."""

    name: str
    args: tuple[Node, ...]


Node: TypeAlias = Literal | Name | Call


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    word: str  # a keyword or a sign, in lower case; empty for all else


def parse(text: str) -> Node:
    """The tree of an expression. NotUnderstoodError names the part that is not understood;
    IncompleteError where no part can make the text an expression."""
    parser = _Parser(text, _tokens(text))
    node = parser.expression()
    parser.expect_end()
    return node


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None and text[at] in "'\"`":
            raise IncompleteError(f"the quote before {text[at + 1 : at + 20]!r} is not closed")
        if found is None or text.startswith(("--", "/*"), at):
            raise NotUnderstoodError(f"{text[at : at + 20]!r} is not understood without Spark")
        kind = "number" if found.lastgroup == "suffix" else str(found.lastgroup)
        if kind != "space":
            piece = found.group()
            word = piece.lower() if kind in ("name", "sign") else ""
            tokens.append(_Token(kind, piece, word))
        at = found.end()
    return tokens


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, text: str, tokens: Sequence[_Token]) -> None:
        self._text, self._tokens, self._at, self._depth = text, tokens, 0, 0

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotUnderstoodError("parts nested so deeply are not understood without Spark")
        terms = [self._and()]
        while self._take("or"):
            terms.append(self._and())
        self._depth -= 1
        return terms[0] if len(terms) == 1 else Call("or", tuple(terms))

    def expect_end(self) -> None:
        if self._next() == ")":
            raise IncompleteError("it closes a parenthesis that it does not open")
        if self._at < len(self._tokens):
            raise self._unclear()

    def _and(self) -> Node:
        terms = [self._not()]
        while self._take("and"):
            terms.append(self._not())
        return terms[0] if len(terms) == 1 else Call("and", tuple(terms))

    def _not(self) -> Node:
        negations = 0
        while self._take("not", "!"):
            negations += 1
        node = self._predicate()
        return Call("not", (node,)) if negations % 2 else node

    def _predicate(self) -> Node:
        left = self._sum()
        if (sign := self._take(*_COMPARISONS)) is not None:
            return Call(_COMPARISONS[sign], (left, self._sum()))
        if self._take("is"):
            negated = self._take("not") is not None
            test = self._is(left)
            return Call("not", (test,)) if negated else test
        negated = self._take("not") is not None
        if self._take("in"):
            self._expect("(")
            node: Node = Call("in", (left, *self._list()))
        elif self._take("between"):
            low = self._sum()
            self._expect("and")
            high = self._sum()
            node = Call("and", (Call(">=", (left, low)), Call("<=", (left, high))))
        elif self._take("like"):
            node = Call("like", (left, self._sum()))
        elif negated:
            raise self._unclear()
        else:
            return left
        return Call("not", (node,)) if negated else node

    def _is(self, left: Node) -> Node:
        if self._take("null"):
            return Call("isnull", (left,))
        if (word := self._take("true", "false")) is not None:
            return Call("<=>", (left, Literal(word == "true", "boolean")))
        self._expect("distinct")
        self._expect("from")
        return Call("not", (Call("<=>", (left, self._sum())),))

    def _sum(self) -> Node:
        node = self._product()
        while (sign := self._take("+", "-", "||")) is not None:
            node = Call("concat" if sign == "||" else sign, (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._signed()
        while (sign := self._take("*", "/")) is not None:
            node = Call(sign, (node, self._signed()))
        return node

    def _signed(self) -> Node:
        minus = False
        while (sign := self._take("+", "-")) is not None:
            minus ^= sign == "-"
        if minus and self._next_kind() == "number":
            return self._number(self._pop().text, -1)
        node = self._primary()
        return Call("negative", (node,)) if minus else node

    def _primary(self) -> Node:
        if self._take("("):
            node = self.expression()
            self._expect(")")
            return node
        if self._take("case"):
            return self._case()
        if (word := self._take("true", "false")) is not None:
            return Literal(word == "true", "boolean")
        if self._take("null"):
            return Literal(None, "void")
        if self._next_kind() in ("number", "text", "quoted", "name"):
            token = self._pop()
            if token.kind == "number":
                return self._number(token.text, 1)
            if token.kind == "text":
                return Literal(_unquoted(token.text), "string")
            return self._named(token)
        if self._next() in _BETWEEN_VALUES:
            raise IncompleteError(f"a value is missing before {self._next()!r}")
        raise self._unclear()

    def _named(self, token: _Token) -> Node:
        """A column, a function, a typed literal, or a cast."""
        if token.word in _WORDS:
            self._at -= 1
            raise self._unclear()
        if token.word in ("date", "timestamp", "timestamp_ntz") and self._next_kind() == "text":
            return Call(f"{token.word} literal", (Literal(_unquoted(self._pop().text), "string"),))
        if token.kind == "name" and self._take("("):
            if token.word == "cast":
                return self._cast()
            return Call(token.word, self._list())
        path = [_bare(token)]
        while self._take("."):
            if self._next_kind() not in ("name", "quoted"):
                raise self._unclear()
            path.append(_bare(self._pop()))
        return Name(tuple(path))

    def _cast(self) -> Node:
        value = self.expression()
        if not (self._next_kind() == "name" and self._pop().word == "as"):
            self._at -= 1
            raise self._unclear()
        if self._next_kind() != "name":
            raise self._unclear()
        kind = self._pop().word
        if self._take("("):
            kind += "(" + ",".join(str(_whole(arg)) for arg in self._list()) + ")"
        self._expect(")")
        return Call("cast", (value, Literal(kind, "string")))

    def _case(self) -> Node:
        """Pairs of a condition and a value, then the value of all else."""
        subject = None if self._next() == "when" else self.expression()
        parts: list[Node] = []
        while self._take("when"):
            condition = self.expression()
            self._expect("then")
            is_so = condition if subject is None else Call("=", (subject, condition))
            parts += [is_so, self.expression()]
        if not parts:
            raise self._unclear()
        parts.append(self.expression() if self._take("else") else Literal(None, "void"))
        self._expect("end")
        return Call("case", tuple(parts))

    def _list(self) -> tuple[Node, ...]:
        """Arguments up to the closing parenthesis."""
        if self._take(")"):
            return ()
        items = [self.expression()]
        while self._take(","):
            items.append(self.expression())
        self._expect(")")
        return tuple(items)

    def _number(self, text: str, sign: int) -> Node:
        found = re.fullmatch(r"([\d.]+)(?:[eE]([+-]?\d+))?([A-Za-z_]\w*)?", text)
        if found is None:
            raise NotUnderstoodError(f"{text!r} is not understood without Spark")
        digits, exponent, suffix = found.groups()
        if suffix and suffix.upper() not in ("L", "D"):
            raise NotUnderstoodError(f"{text!r} is not understood without Spark")
        if exponent is not None or (suffix and suffix.upper() == "D"):
            return Literal(sign * float(digits + (f"e{exponent}" if exponent else "")), "double")
        if "." not in digits:
            whole = sign * int(digits)
            for kind, bits in _INTEGERS:
                if -(2**bits) <= whole < 2**bits and not (suffix and kind == "integer"):
                    return Literal(whole, kind)
        if suffix:
            raise NotUnderstoodError(f"{text!r} is not understood without Spark")
        value = Decimal(digits).copy_sign(sign)  # a product would be rounded to 28 digits
        scale = -int(value.as_tuple().exponent)
        precision = max(len(value.as_tuple().digits), scale)
        if precision > MAX_PRECISION:
            raise NotUnderstoodError(f"{text!r} has more than {MAX_PRECISION} digits")
        return Literal(value, f"decimal({precision},{scale})")

    def _next(self) -> str:
        return self._tokens[self._at].word if self._at < len(self._tokens) else ""

    def _next_kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _pop(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, *words: str) -> str | None:
        word = self._next()
        if word and word in words:
            self._at += 1
            return word
        return None

    def _expect(self, word: str) -> None:
        if self._take(word) is None:
            raise self._unclear()

    def _unclear(self) -> UsageError:
        if self._at >= len(self._tokens):
            return IncompleteError("it ends too early")
        return NotUnderstoodError(f"{self._tokens[self._at].text!r} is not understood there")


def _bare(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _unquoted(text: str) -> str:
    """The value of a literal text. A pattern of LIKE keeps its escaped wildcards."""
    quote, inner, out, at = text[0], text[1:-1], [], 0
    while at < len(inner):
        char = inner[at]
        if char == "\\":
            escaped = inner[at + 1]
            if escaped in "%_":
                out.append("\\" + escaped)
            elif escaped in _ESCAPES:
                out.append(_ESCAPES[escaped])
            else:
                raise NotUnderstoodError(f"'\\{escaped}' in a text is not understood without Spark")
            at += 2
            continue
        out.append(char)
        at += 2 if char == quote else 1
    return "".join(out)


def _whole(node: Node) -> int:
    if isinstance(node, Literal) and node.type == "integer":
        return int(node.value)
    raise NotUnderstoodError("a type is followed by numbers of digits, such as decimal(10,2)")
