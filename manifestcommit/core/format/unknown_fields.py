"""Preserves unknown members through a read and a rewrite, at every depth. [OB12]

Every struct of the format has a field `extra`, spelled `__unknown__` in its raw form.
`stash_unknown` moves the members that a struct does not know into it; `restore_unknown` puts them
back. Both follow the types, so that a user's own mapping is never mistaken for a struct.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

import msgspec

SPELLING = "__unknown__"
# levels of nested values beside unknown members; below every limit of Python and msgspec
MAX_DEPTH = 400


def stash_unknown(raw: Any, kind: Any) -> Any:
    """Move every unknown member in the raw form of `kind` into `__unknown__`. [OB12]"""
    return _walk(raw, kind, _tuck_one)


def decode_tucked(raw: bytes, kind: Any) -> Any:
    """Decode a struct whose raw form has unknown members beside the known ones. [OB12]"""
    document = msgspec.json.decode(raw)
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            value
            for holder in level
            for value in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(value, dict | list)
        ]
    if level:
        raise msgspec.ValidationError(f"its members are nested more than {MAX_DEPTH} deep")
    return msgspec.convert(stash_unknown(document, kind), type=kind, strict=True, str_keys=True)


def restore_unknown(raw: Any, kind: Any) -> Any:
    """Restore the raw form as it was written, with unknown members beside the known ones. [OB12]"""
    return _walk(raw, kind, _untuck_one)


def _tuck_one(raw: dict[str, Any], known: typing.AbstractSet[str]) -> dict[str, Any]:
    if SPELLING in raw:
        raise msgspec.ValidationError(f"Object contains the reserved field `{SPELLING}`")
    unknown = {name: value for name, value in raw.items() if name not in known}
    if not unknown:
        return raw
    return {name: value for name, value in raw.items() if name in known} | {SPELLING: unknown}


def _untuck_one(raw: dict[str, Any], known: typing.AbstractSet[str]) -> dict[str, Any]:
    if SPELLING not in raw:
        return raw
    unknown = raw[SPELLING]
    plain = {name: value for name, value in raw.items() if name != SPELLING}
    return {name: value for name, value in unknown.items() if name not in known} | plain


def _walk(raw: Any, kind: Any, one: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _walk_struct(raw, kind, one)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(raw, list | tuple):
        return [_walk(item, arguments[0], one) for item in raw]
    if origin is dict and isinstance(raw, dict):
        return {name: _walk(value, arguments[1], one) for name, value in raw.items()}
    if origin in (typing.Union, types.UnionType) and isinstance(raw, dict):
        chosen = [a for a in arguments if _is_tagged(a, raw)]
        return _walk(raw, chosen[0], one) if chosen else raw
    return raw


def _walk_struct(raw: Any, kind: type[msgspec.Struct], one: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    members, known = _members(kind)
    walked = {
        name: _walk(value, members[name], one) if name in members else value
        for name, value in raw.items()
    }
    return one(walked, known)


def _is_tagged(kind: Any, raw: dict[str, Any]) -> bool:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return False
    config = kind.__struct_config__
    return config.tag is None or raw.get(str(config.tag_field)) == config.tag


@functools.cache
def _members(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], frozenset[str]]:
    hints = typing.get_type_hints(kind)
    members = {
        field.encode_name: hints[field.name]
        for field in msgspec.structs.fields(kind)
        if field.encode_name != SPELLING
    }
    tag = kind.__struct_config__.tag_field
    return members, frozenset(members) | {SPELLING} | ({tag} if tag else set())
