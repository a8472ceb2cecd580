"""Texts that can be stored. [SC7]"""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can carry the text: lone surrogates cannot be stored. [SC7]"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
