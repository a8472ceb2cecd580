"""Parses an expression of Spark's SQL with sqlglot, and refuses where sqlglot reads it otherwise
than Spark's grammar does. [RC2] Pure. sqlglot accepts more than Spark, rewrites functions and
literals, and has an order of operators of its own. So it gets tokens whose text is as it was
written, and leaves functions as plain names; each operator of the tree is checked to bind its
operands by Spark's order. What is not in the tables is `NotUnderstoodError`, never a guess: Spark
reads the text then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from types import new_class
from typing import Any

from ..errors import UsageError
from ..format.fields import MAX_PRECISION

_MAX_DEPTH = 32  # of nested parentheses and CASEs: one takes sqlglot 20 Python frames
# A class of sqlglot's trees -> how tightly it binds, as in Spark's grammar; how many tokens it has
# of its own, besides commas; how tightly each of its operands has to bind (0: any expression).
_NODES: dict[str, tuple[int, int, dict[str, int]]] = {
    "Or": (1, 1, {"this": 1, "expression": 2}),
    "And": (2, 1, {"this": 2, "expression": 3}),
    "Not": (3, 1, {"this": 3}),
    "Is": (4, 1, {"this": 6, "expression": 9}),
    "In": (4, 3, {"this": 6, "expressions": 0}),
    "Between": (4, 2, {"this": 6, "low": 6, "high": 6}),
    **dict.fromkeys(("Like", "ILike"), (4, 1, {"this": 6, "expression": 6, "negate": 0})),
    **dict.fromkeys(
        ("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ"), (5, 1, {"this": 6, "expression": 6})
    ),
    "NullSafeNEQ": (5, 3, {"this": 6, "expression": 6}),  # IS DISTINCT FROM
    **dict.fromkeys(("Add", "Sub", "DPipe"), (6, 1, {"this": 6, "expression": 7, "safe": 0})),
    **dict.fromkeys(
        ("Mul", "Div", "Mod", "IntDiv"), (7, 1, {"this": 7, "expression": 8, "typed": 0, "safe": 0})
    ),
    "Neg": (8, 1, {"this": 8}),
    "Paren": (9, 2, {"this": 0}),
    "Anonymous": (9, 2, {"this": 9, "expressions": 0}),
    "Cast": (9, 0, {"this": 9, "to": 9}),  # DATE '…'
    "TryCast": (9, 4, {"this": 0, "to": 9, "safe": 0, "requires_string": 0}),
    "DataType": (9, 1, {"this": 9, "expressions": 9}),
    "DataTypeParam": (9, 0, {"this": 9}),
    "Case": (9, 2, {"this": 0, "ifs": 0, "default": 0}),
    "If": (9, 2, {"this": 0, "true": 0}),
    "Interval": (9, 1, {"this": 9, "unit": 9}),
    "Column": (10, -1, dict.fromkeys(("this", "table", "db", "catalog"), 10)),
    "Dot": (10, 1, {"this": 10, "expression": 10}),
    "Identifier": (10, 1, {"this": 9, "quoted": 0}),
    "Literal": (9, 1, {"this": 9, "is_string": 0}),
    "Boolean": (9, 1, {"this": 0}),
    "Null": (9, 1, {}),
    "Var": (9, 1, {"this": 9}),
}
_TOKENS = {  # how each kind of a token is written; the first that fits
    "number": re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[A-Za-z_]\w*)?", re.ASCII),
    "text": re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL),
    "quoted": re.compile(r"`(?:[^`]|``)+`"),
    "name": re.compile(r"[A-Za-z_]\w*", re.ASCII),
    "sign": re.compile(r"<=>|<>|!=|<=|>=|==|\|\||[=<>+\-*/%(),.!]"),
}
_NUMBER = re.compile(r"([\d.]+)(?:[eE]([+-]?\d+))?([A-Za-z_]\w*)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_SCAN = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`"""
    r"""|(?P<odd>--|/\*|['"`{};]|\br['"])|(?P<sign>[()\[\]])|(?P<word>\w+)""",
    re.DOTALL | re.IGNORECASE,
)
_MOST_TERMS = 100
_AFTER_VALUES = {
    *("=", "==", "<>", "!=", "<=", ">=", "<", ">", "<=>", "*", "/", "%", "||", ",", ".", ")"),
    *("div", "and", "or", "like", "ilike", "between", "in", "is", "from"),
}
_OPENS = {
    *(_AFTER_VALUES - {")"}),
    *("(", "+", "-", "!", "not", "distinct", "as", "case", "when", "then", "else"),
}
_CLOSES = {")": "(", "end": "case"}
_PAIRS = {  # what may follow one another all the same
    ("(", ")"),
    ("distinct", "from"),
    *(("not", word) for word in ("in", "like", "ilike", "between")),
}
# What sqlglot takes for more than a name; all other words are names.
_WORDS = _OPENS | {"null", "true", "false", "end"}
_REFUSED = {"from", "select", "exists", "any", "all", "some", "escape", "rlike", "regexp"}
_LITERAL_TYPES = {"date", "timestamp", "timestamp_ntz", "interval"}  # before a text
_CASTS = {
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "decimal", "dec", "numeric"),
    *("string", "date", "timestamp", "timestamp_ntz"),
}
_INTEGERS = (("integer", 31), ("long", 63))


class NotUnderstoodError(UsageError):
    """A text in SQL has a part that only Spark understands, or none does."""


def only_spark(part: str) -> NotUnderstoodError:
    """The error for a part that only Spark can evaluate."""
    return NotUnderstoodError(f"{part} is not understood without Spark")


class IncompleteError(UsageError):
    """A text in SQL that lacks a part, a quote or a parenthesis, or is no condition."""


def parse(text: str) -> Any:
    """sqlglot's tree of an expression: literals as they are written, but texts without quotes.
    NotUnderstoodError names the part that is not understood; IncompleteError where no part can make
    the text an expression."""
    from sqlglot import exp
    from sqlglot.errors import ParseError

    tokens = _tokens(text)
    try:
        (tree,) = _dialect().parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ParseError) else error
        part = str((cause.errors or [{}])[0].get("highlight") or text[:20])
        raise NotUnderstoodError(f"{part!r} is not understood there") from None
    except RecursionError:
        raise too_deep() from None
    except Exception as error:  # sqlglot fails in many ways for what is no SQL
        raise NotUnderstoodError(f"it is not understood ({type(error).__name__})") from None
    if tree is None:
        raise only_spark(f"{text[:20]!r}")
    _check(tree, len(tokens), sum(token.token_type.name == "DISTINCT" for token in tokens))
    return tree


def number(text: str, sign: int = 1) -> tuple[int | float | Decimal, str]:
    """A number as it is written: its value and its type."""
    found = _NUMBER.fullmatch(text)
    digits, exponent, suffix = found.groups() if found is not None else (text, None, "?")
    kind = (suffix or "").upper()
    is_double = exponent is not None or kind == "D"
    is_odd = is_double if kind == "BD" else kind == "L" and (is_double or "." in digits)
    if is_odd or kind not in ("", "L", "D", "BD"):
        raise only_spark(repr(text))
    if is_double:
        return sign * float(digits + (f"e{exponent}" if exponent else "")), "double"
    if "." not in digits and len(digits) < 20 and kind != "BD":
        whole = sign * int(digits)
        for name, bits in _INTEGERS:
            if -(2**bits) <= whole < 2**bits and not (kind and name == "integer"):
                return whole, name
    if kind == "L":
        raise only_spark(repr(text))
    value = Decimal(digits).copy_sign(sign)  # a product would be rounded to 28 digits
    scale = -int(value.as_tuple().exponent)
    precision = max(len(value.as_tuple().digits), scale)
    if precision > MAX_PRECISION:
        raise NotUnderstoodError(f"{text!r} has more than {MAX_PRECISION} digits")
    return value, f"decimal({precision},{scale})"


@cache
def _dialect() -> Any:
    """Spark's, but that functions keep their names and arguments."""
    from sqlglot.dialects.spark import Spark

    base = Spark.Parser
    own: dict[str, dict[Any, Any]] = {
        "FUNCTIONS": {},
        "FUNCTION_PARSERS": {"CAST": base.FUNCTION_PARSERS["CAST"]},
        "NO_PAREN_FUNCTIONS": {},
        "NO_PAREN_FUNCTION_PARSERS": {"CASE": base.NO_PAREN_FUNCTION_PARSERS["CASE"]},
    }
    parser = new_class("Parser", (base,), exec_body=lambda names: names.update(own))
    dialect = new_class("AsWritten", (Spark,), exec_body=lambda names: names.update(Parser=parser))
    return dialect()


def _tokens(text: str) -> list[Any]:
    """sqlglot's tokens, each with the text that it has in the tree."""
    from sqlglot.errors import TokenError

    try:
        given = _dialect().tokenize(text)
    except TokenError:
        whole = "|".join(_TOKENS[kind].pattern for kind in ("text", "quoted"))
        quotes = re.finditer(f"{whole}|['\"`]", text, re.DOTALL)
        place = next((each.end() for each in quotes if len(each[0]) == 1), 0)
        after = text[place : place + 20]
        raise IncompleteError(f"the quote before {after!r} is not closed") from None
    pieces = list(_pieces(text, given))
    words = [
        text[start:end].lower() if kind in ("name", "sign") else ""
        for kind, start, end, _ in pieces
    ]
    kinds = [kind for kind, *_ in pieces]
    _check_words(words, kinds, [text[start:end] for _, start, end, _ in pieces])
    made, token, types = [], type(given[0]), type(given[0].token_type)
    for at, (kind, start, end, token_type) in enumerate(pieces):
        if words[at] == "+" and (at == 0 or words[at - 1] in _OPENS):
            continue  # the sign of a number
        raw, is_type = text[start:end], at > 0 and words[at - 1] == "as"
        is_type |= words[at] in _LITERAL_TYPES and kinds[at + 1 : at + 2] in (["text"], ["number"])
        if kind == "text":
            token_type, raw = types.STRING, _unquoted(raw)
        elif kind == "quoted":
            raw = raw[1:-1].replace("``", "`")
        elif kind == "number":
            token_type = types.NUMBER
        elif kind == "name" and words[at] not in _WORDS and not is_type:
            token_type = types.VAR
        made.append(token(token_type, raw, 1, start, start, end - 1))
    return made


def _pieces(text: str, tokens: Sequence[Any]) -> Iterator[tuple[str, int, int, Any]]:
    """The kind, place and type of each token: as Spark splits the text, else NotUnderstoodError."""
    at, number = 0, 0
    while number < len(tokens):
        token, start = tokens[number], tokens[number].start
        end, number = token.end + 1, number + 1
        while (
            number < len(tokens)
            and (
                tokens[number].start < end  # the type that a suffix of a number stands for
                or (tokens[number].start == end and _is_one(text[start:end], text[end:][:1]))
            )
        ):
            end, number = max(end, tokens[number].end + 1), number + 1
        raw = text[start:end]
        kind = next((name for name, form in _TOKENS.items() if form.fullmatch(raw)), None)
        if kind is None or text[at:start].strip(" \t\r\n\f\v"):
            raise only_spark(f"{text[at:end].strip()[:20]!r}")
        yield kind, start, end, token.token_type
        at = end
    if text[at:].strip(" \t\r\n\f\v"):
        raise only_spark(f"{text[at:].strip()[:20]!r}")


def _is_one(raw: str, after: str) -> bool:
    """Whether Spark's token goes on, where sqlglot's ends: 'it''s', .5"""
    return raw[0] == after if raw[0] in "'\"" else raw == "." and "0" <= after <= "9"


def _check_words(words: Sequence[str], kinds: Sequence[str], raws: Sequence[str]) -> None:
    """Errors for what sqlglot ignores: a value that is missing, a word without its other."""
    opened: list[str] = []
    run = 0  # of NOT and -
    for at, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        before, after = words[at - 1] if at else "(", words[at + 1] if at + 1 < len(words) else ""
        follows_value = before not in _OPENS
        run = run + 1 if word in ("not", "!", "-") else 0
        if word in ("(", "case"):
            opened.append(word)
        elif word == ")" and "(" not in opened:
            raise IncompleteError("it closes a parenthesis that it does not open")
        elif word in _CLOSES and (not opened or opened.pop() != _CLOSES[word]):
            raise NotUnderstoodError(f"{raws[at]!r} is not understood there")
        if len(opened) > _MAX_DEPTH or run > _MAX_DEPTH:
            raise too_deep()
        if not follows_value and word in _AFTER_VALUES and (before, word) not in _PAIRS:
            raise IncompleteError(f"a value is missing before {raws[at]!r}")
        if (
            (word == "not" and follows_value and ("not", after) not in _PAIRS)
            or (word in _REFUSED and (before, word) not in _PAIRS)
            or (word == "+" and not follows_value and kinds[at + 1 : at + 2] != ["number"])
            or (word == "+" and before in ("+", "-"))
            or (before == "as" and word not in _CASTS)
            or (kind == "text" and follows_value and before not in _LITERAL_TYPES)
        ):
            raise NotUnderstoodError(f"{raws[at]!r} is not understood there")
    if not words or opened or words[-1] in _OPENS:
        raise IncompleteError("it ends too early")


def terms(node: Any) -> list[Any]:
    """The terms of `a AND b AND …`, or of OR; thousands of them must not deepen the recursion."""
    found, kind = [], type(node)
    while type(node) is kind:
        found.append(node.expression)
        node = node.this
    return [node, *reversed(found)]


def conjuncts(text: str) -> list[str]:
    """The texts of the terms of `a AND b AND …`; the text itself where it may be more."""
    found, start, depth, betweens = [], 0, 0, 0
    for each in _SCAN.finditer(text):
        word = (each["word"] or "").lower()
        if each["odd"] or (word == "or" and not depth):
            return [text]
        if (each["sign"] or word) in ("(", "[", "case"):
            depth += 1
        elif (each["sign"] or word) in (")", "]", "end"):
            depth -= 1
        elif word == "between" and not depth:
            betweens += 1
        elif word == "and" and not depth and betweens:
            betweens -= 1
        elif word == "and" and not depth:
            found.append(text[start : each.start()])
            start = each.end()
    is_sure = not depth and not betweens and len(found) < _MOST_TERMS
    return [*found, text[start:]] if is_sure else [text]


def with_operators(tree: Any) -> Any:
    """The tree with operators for calls by name, as Spark writes a Column: `=`(a, b) for a = b."""
    from sqlglot import exp

    pairs = {"=": exp.EQ, "==": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT}
    pairs |= {">=": exp.GTE, "<=>": exp.NullSafeEQ, "and": exp.And, "or": exp.Or, "+": exp.Add}
    pairs |= {"-": exp.Sub, "*": exp.Mul, "/": exp.Div, "%": exp.Mod}

    for node in reversed([*tree.find_all(exp.Anonymous)]):  # what is inside comes first
        name, args = node.name.lower(), node.expressions
        made: Any = None
        if name in pairs and len(args) == 2:
            made = pairs[name](this=args[0], expression=args[1])
        elif name in ("not", "!") and len(args) == 1:
            made = exp.Not(this=args[0])
        elif name == "in" and args:
            made = exp.In(this=args[0], expressions=args[1:])
        if made is not None and node is tree:
            tree = made
        elif made is not None:
            node.replace(made)
    return tree


def _check(tree: Any, tokens: int, distincts: int) -> None:
    """NotUnderstoodError where the tree is not the one that Spark's grammar makes: every operand
    binds tightly enough, and the tree has each token of the text."""
    waiting = [tree]
    tokens -= 3 * distincts  # IS NOT DISTINCT FROM is the class of <=>
    while waiting:
        node = waiting.pop()
        name = type(node).__name__
        if name not in _NODES:
            raise only_spark(written(node))
        _, own, operands = _NODES[name]
        tokens -= own - 3 * (name == "NullSafeNEQ")
        for key, value in node.args.items():
            every = value if isinstance(value, list) else [value]
            parts = [each for each in every if each is not None and each is not False]
            if parts and key not in operands:
                raise only_spark(written(node))
            tokens -= _between_parts(name, key, len(parts))
            for part in parts:
                if not hasattr(part, "args"):
                    tokens -= name == "Anonymous" or key == "negate"  # a name; NOT
                elif type(part).__name__ not in _NODES:
                    raise only_spark(written(part))
                elif _NODES[type(part).__name__][0] < operands[key]:
                    raise NotUnderstoodError(
                        f"{written(part)} needs parentheses of its own to be understood"
                    )
                else:
                    waiting.append(part)
    if tokens:
        raise NotUnderstoodError("a word or a parenthesis is missing, or one too many")


def _between_parts(name: str, key: str, count: int) -> int:
    """The tokens that a number of parts adds: commas, dots, parentheses, ELSE."""
    if key == "expressions" and count:
        return count - 1 + 2 * (name == "DataType")
    return count if name == "Column" or key == "default" else 0


def written(node: Any) -> str:
    """A part of the tree, for a message."""
    try:
        return repr(node.sql("spark")[:40])
    except Exception:  # whatever sqlglot cannot write
        return repr(type(node).__name__)


def too_deep() -> NotUnderstoodError:
    """The error for more nested parts than can be compiled."""
    return NotUnderstoodError("parts nested so deeply are not understood without Spark")


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
                raise only_spark(f"'\\{escaped}' in a text")
            at += 2
            continue
        out.append(char)
        at += 2 if char == quote else 1
    return "".join(out)
