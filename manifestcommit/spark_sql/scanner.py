"""A statement as tokens: what it is built of, piece by piece, with the exact text of each. [SP49]

sqlglot reads it, and never writes it: texts reach Spark and the library as they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UsageError

Name = tuple[str, ...]  # the parts of a name, without quotes
_OPEN, _CLOSE = {"L_PAREN", "L_BRACKET", "L_BRACE"}, {"R_PAREN", "R_BRACKET", "R_BRACE"}
_LITERALS = {"STRING", "NUMBER"}
# A statement that sqlglot does not know is one token to it, but for what follows another word.
BEGINNING = "SELECT "


def refusal(why: str, instead: str) -> UsageError:
    """The error for a statement that is not understood. instead: the call that does it."""
    return UsageError(f"{why}; nothing was done. Instead: {instead}", argument="statement")


def tokens_of(text: str) -> list[Any]:
    """The tokens of a text. UsageError where it has none, or is not SQL."""
    from sqlglot.dialects import Databricks
    from sqlglot.errors import SqlglotError

    try:
        return list(Databricks().tokenize(text))
    except SqlglotError as error:
        raise refusal(str(error), "spark.sql, if Spark understands it") from None


def has_double_quotes(text: str) -> bool:
    """Whether anything but a text in single quotes, a name in backquotes or a comment has one."""
    raws = (text[token.start : token.end + 1] for token in tokens_of(text))
    return any('"' in raw and raw[0] not in "'`" for raw in raws)


class Scanner:
    """Reads a statement from left to right. instead: the call that errors name."""

    def __init__(self, text: str) -> None:
        self.text = BEGINNING + text
        self.instead = "spark.sql over the names of mc.attach"
        self._tokens, self._at = tokens_of(self.text)[1:], 0
        while self._tokens and self._tokens[-1].token_type.name == "SEMICOLON":
            self._tokens.pop()
        if not self._tokens:
            raise refusal("it is empty", self.instead)
        if any(token.token_type.name == "SEMICOLON" for token in self._tokens):
            raise refusal("these are several statements", "mc.sql for each of them")
        if self._passes_hint():
            raise refusal("it has a hint /*+ … */ where no hint is allowed", "a comment, /* … */")

    @property
    def position(self) -> int:
        """Where the next token begins in the text."""
        return self._tokens[self._at].start if not self.is_over else len(self.text)

    @property
    def last_end(self) -> int:
        """Where the last token that was passed ends in the text."""
        return int(self._tokens[self._at - 1].end) + 1

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._tokens)

    def unclear(self) -> UsageError:
        """The error for what comes next."""
        if self.is_over:
            return refusal("it ends too early", self.instead)
        token = self._tokens[self._at]
        return refusal(f"{self._raw(token)!r} is not understood there", self.instead)

    def next_word(self, ahead: int = 0) -> str:
        """The next keyword or sign in capitals; empty for names in quotes, literals and the end."""
        at = self._at + ahead
        return "" if at >= len(self._tokens) else _word(self._raw(self._tokens[at]))

    def take(self, *words: str) -> bool:
        """Whether these words come next, which are passed then."""
        found: list[str] = []
        ahead = 0
        while len(found) < len(words) and (word := self.next_word(ahead)):
            found += word.split()  # one token may be two words, such as PARTITIONED BY
            ahead += 1
        if found != list(words):
            return False
        self._at += ahead
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.unclear()

    def expect_end(self) -> None:
        if not self.is_over:
            raise self.unclear()

    def name(self) -> Name:
        """A name of one part or several."""
        parts = [self._part()]
        while self.take("."):
            parts.append(self._part())
        return tuple(parts)

    def column(self) -> str:
        """A name of one part."""
        return self._part()

    def columns(self) -> list[str]:
        """Names of one part in parentheses."""
        return self.listed(self._part)

    def listed(self, item: Callable[[], Any]) -> list[Any]:
        """Items in parentheses, split by commas."""
        self.expect("(")
        found = [item()]
        while self.take(","):
            found.append(item())
        self.expect(")")
        return found

    def literal(self) -> tuple[str, str]:
        """STRING or NUMBER, and what it says."""
        if self.is_over or self._tokens[self._at].token_type.name not in _LITERALS:
            raise self.unclear()
        token = self._tokens[self._at]
        raw = self._raw(token)
        if token.token_type.name == "STRING":
            if not (raw[0] == raw[-1] and raw[0] in "'\"") or raw[0] in raw[1:-1] or "\\" in raw:
                raise refusal(f"{raw} has escapes, which are not understood there", self.instead)
            raw = raw[1:-1]
        self._at += 1
        if not self.is_over and self._tokens[self._at].token_type.name == "STRING":
            raise self.unclear()  # Spark joins texts that follow one another
        return str(token.token_type.name), raw

    def string(self) -> str:
        """A literal text."""
        kind, value = self.literal()
        if kind != "STRING":
            self._at -= 1
            raise self.unclear()
        return value

    def number(self) -> int:
        """A whole number."""
        kind, value = self.literal()
        if kind != "NUMBER" or not value.isascii() or not value.isdigit():
            self._at -= 1
            raise self.unclear()
        return int(value)

    def until(self, *words: str, angles: bool = False) -> str:
        """The text up to one of these words, outside of parentheses and CASE, or to the end.
        angles: < and > are parentheses, as in types."""
        first, depth, cases = self._at, 0, 0
        while not self.is_over:
            token, word = self._tokens[self._at], self.next_word()
            kind = token.token_type.name
            if depth == 0 and cases == 0 and word in words:
                break
            depth += (kind in _OPEN) - (kind in _CLOSE)
            depth += (word.count("<") - word.count(">")) * angles
            if depth < 0:
                break
            is_keyword = self._at == first or self._raw(self._tokens[self._at - 1]) != "."
            cases += (word == "CASE" and is_keyword) - (word == "END" and cases > 0)
            self._at += 1
        if self._at == first:
            raise self.unclear()
        return self.text[self._tokens[first].start : self._tokens[self._at - 1].end + 1]

    def rest(self) -> str:
        """The text up to the end."""
        found = self.until()
        self.expect_end()
        return found

    def _part(self) -> str:
        if self.is_over:
            raise self.unclear()
        token = self._tokens[self._at]
        raw = self._raw(token)
        if raw.startswith("`"):
            self._at += 1
            return raw[1:-1].replace("``", "`")
        if token.token_type.name in _LITERALS or not _is_plain(raw):
            raise self.unclear()
        self._at += 1
        return raw

    def _passes_hint(self) -> bool:
        """Whether the tokens leave out a hint, as if it were a comment."""
        at = 0
        for token in self._tokens:
            if "/*+" in self.text[at : token.start]:
                return True
            at = token.end + 1
        return "/*+" in self.text[at:]

    def _raw(self, token: Any) -> str:
        return self.text[token.start : token.end + 1]


def _word(raw: str) -> str:
    return "" if raw[:1] in "`'\"" or raw[:1].isdigit() else " ".join(raw.upper().split())


def _is_plain(raw: str) -> bool:
    """Whether it is a name that needs no quotes."""
    return raw.isascii() and raw.replace("_", "a").isalnum() and not raw[0].isdigit()
