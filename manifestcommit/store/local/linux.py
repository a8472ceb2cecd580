"""System calls of Linux that Python's `os` lacks: read a folder in one call, swap two names. If
they are not available, callers do without. [ST40]
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Any

# ext2 to ext4, xfs, tmpfs: every change of a folder goes through this kernel
_KINDS = frozenset({0xEF53, 0x58465342, 0x01021994})
_NO_FOLDERS = 2  # links of a folder without subfolders: its own name and its dot
_LEAST_BYTES, _MOST_BYTES = 1 << 14, 1 << 26
# A record: inode and offset, its length, one byte of type, the name, a NUL, and padding.
_LENGTH_AT, _TYPE, _NAME = 16, 18, 19
_LENGTH = struct.Struct(f"={_LENGTH_AT}xH")
# records are searched together, this many at first
_SMALL_BYTES, _FEW = 1 << 14, 16
_KIND = struct.Struct("@l")  # the first member of `struct statfs`
_FOLDER_OR_UNKNOWN = (4, 0)
_HERE, _EXCHANGE = -100, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any, result: Any = ctypes.c_int) -> Any:
    function = getattr(_libc, name, None)
    if function is not None:
        function.argtypes, function.restype = arguments, result
    return function


_getdents = _call(
    "getdents64", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, result=ctypes.c_ssize_t
)
_fstatfs = _call("fstatfs", ctypes.c_int, ctypes.c_void_p)
_rename = _call(
    "renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
)


def end_at_once(folder: int, least: str) -> list[str] | None:
    """The names from `least` on in a folder, all as of one moment; None if this system cannot
    return them in this way. [ST40]

    Adding or removing a name waits for the lock that one call holds, so a call that has returned
    every name is a snapshot; the next call says whether it has. A folder with subfolders, or with
    more than `_MOST_BYTES`, is left to the caller.
    """
    status = os.fstat(folder)
    size = max(_LEAST_BYTES, 3 * status.st_size)
    if (
        _getdents is None
        or _fstatfs is None
        or not least.isascii()
        or status.st_nlink != _NO_FOLDERS
        or size > _MOST_BYTES
    ):
        return None
    room = (ctypes.c_char * size)()
    if _fstatfs(folder, room) != 0 or _KIND.unpack_from(room)[0] not in _KINDS:
        return None
    end = _getdents(folder, room, size)
    if end < 0 or _getdents(folder, ctypes.byref(room, end), size - end) != 0:
        return None
    names = []
    for record in _from(ctypes.string_at(room, end), least.encode()):
        name = os.fsdecode(record[1:].partition(b"\0")[0])
        if name not in (".", ".."):
            if record[0] in _FOLDER_OR_UNKNOWN:
                return None
            names.append(name)
    return names


def _from(records: bytes, least: bytes) -> list[bytes]:
    """Type and name of every record that is not below `least`, which is ASCII: only then are bytes
    in the order of code points.

    Names of one length are mostly adjacent by the thousand; comparing those takes half of the time
    that it takes to go from one to the next.
    """
    found, at, window = [], 0, _FEW
    end, is_large = len(records), len(records) > _SMALL_BYTES
    while at < end:
        (length,) = _LENGTH.unpack_from(records, at)
        run = _alike(records[at : at + window * length], length) if is_large else 1
        after = at + run * length
        if run == 1 and records[at + _NAME : after] >= least:
            found.append(records[at + _TYPE : after])
        elif run > 1:
            alike = struct.iter_unpack(f"={_TYPE}x1s{length - _NAME}s", records[at:after])
            found += [kind + name for kind, name in alike if name >= least]
        at, window = after, 2 * window if run == window else _FEW
    return found


def _alike(run: bytes, length: int) -> int:
    """How many records from the first on have the first one's length, so that the next one begins
    where they end."""
    low, high = run[_LENGTH_AT::length], run[_LENGTH_AT + 1 :: length]
    return min(len(low) - len(low.lstrip(low[:1])), len(high) - len(high.lstrip(high[:1])))


def replace(source: str, target: str) -> None:
    """Like os.replace, but without waiting for the disk if possible; `source` may then be left with
    the target's old content. [ST2]

    ext4 flushes a file that replaces another by rename, which costs more than everything else in a
    small put.
    """
    if (
        _rename is not None
        and _is_file(target)
        and _rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _EXCHANGE) == 0
    ):
        return
    os.replace(source, target)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
