"""Checks of texts that are to be stored, and short forms of values for error messages. [SC7]
[SE3]"""

from __future__ import annotations

import datetime as dt
import reprlib
from numbers import Number
from typing import Any, TypeGuard


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text: lone surrogates cannot be stored. [SC7]"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a non-empty text that can be stored. [SC7]"""
    return isinstance(value, str) and value != "" and is_unicode(value)


def shown(value: object) -> str:
    """A value for an error message: short, on one line, and never the content of a mapping, which
    may hold credentials. [SE1]"""
    if isinstance(value, _PLAIN) or hasattr(type(value), "__fspath__"):
        try:
            return _SHORT.repr(value)
        except ValueError:  # an integer with too many digits to print
            pass
    return f"of type {type(value).__module__}.{type(value).__qualname__}".replace(" builtins.", " ")


_PLAIN = (str, bytes, Number, dt.date, dt.time, dt.timedelta, list, tuple, type(None))


class _Short(reprlib.Repr):
    """Texts of up to 80 characters, lists of up to 6 items; of anything else inside a list only its
    type."""

    maxstring = maxother = 80

    def repr1(self, x: Any, level: int) -> str:
        plain = isinstance(x, _PLAIN) or hasattr(type(x), "__fspath__")
        return super().repr1(x, level) if plain else f"<{type(x).__qualname__}>"


_SHORT = _Short()
