"""Texts that can be stored. [SC7]"""

from __future__ import annotations

from typing import TypeGuard


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can carry the text: lone surrogates cannot be stored. [SC7]"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a text with something in it that can be stored. [SC7]"""
    return isinstance(value, str) and value != "" and is_unicode(value)
