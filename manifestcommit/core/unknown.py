"""Unknown fields survive a read and a rewrite, at every depth. [OB12]

Every struct of the format has a field `extra`, spelled `__unknown__` in its raw form. `tuck` moves what a struct does not know into it;
`untuck` puts it back where it was. Both follow the types, so that a user's own mapping is never mistaken for a struct.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

import msgspec

SPELLING = "__unknown__"


def tuck(raw: Any, kind: Any) -> Any:
    """The raw form of `kind` with every unknown member moved into `__unknown__`. [OB12]"""
    return _walk(raw, kind, _tuck_one)


def untuck(raw: Any, kind: Any) -> Any:
    """The raw form as it was written: unknown members back beside the known ones. [OB12]"""
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
    walked = {name: _walk(value, members[name], one) if name in members else value for name, value in raw.items()}
    return one(walked, known)


def _is_tagged(kind: Any, raw: dict[str, Any]) -> bool:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return False
    config = kind.__struct_config__
    return config.tag is None or raw.get(str(config.tag_field)) == config.tag


@functools.cache
def _members(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], frozenset[str]]:
    hints = typing.get_type_hints(kind)
    members = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind) if field.encode_name != SPELLING}
    tag = kind.__struct_config__.tag_field
    return members, frozenset(members) | {SPELLING} | ({tag} if tag else set())
