"""Local and other POSIX file systems: creates by link, so that an object is complete or absent, and
fsyncs what is durable; and the memory of this process. [ST1] [ST2]

O_EXCL alone would let a reader see an empty file; a rename would overwrite a winner.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, BinaryIO

from ..errors import (
    OutputGoneError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    StoreUnclearError,
)
from .base import ObjectInfo, Output, Store, Unfinished, check_name, check_root, missing_file

# Python's `os` lacks the system call of Linux that swaps two names.
_HERE, _EXCHANGE = -100, 2
_rename = getattr(ctypes.CDLL(None), "renameat2", None)


def replace(source: str, target: str) -> None:
    """Like os.replace, but without waiting for the disk if possible; `source` may then be left with
    the target's old content. [ST2] ext4 flushes a file that replaces another by rename, which costs
    more than everything else in a small put."""
    if (
        _rename is not None
        and os.path.isfile(target)
        and not os.path.islink(target)
        and _rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _EXCHANGE) == 0
    ):
        return
    os.replace(source, target)


_TEMPORARY = ".mc-tmp-"
_MOST_BYTES = 255  # bytes of one component of a name
_TRIES = 8  # attempts to name a temporary file, if others remove it
_KINDS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), StoreDeniedError),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), StoreFullError),
}
_SCANS = 64  # how often a folder that keeps changing is scanned before the scans are merged


class LocalStore(Store):
    """One folder; survives kill -9 and power loss. [ST1] [ST2]"""

    identity = ""  # link is atomic by POSIX
    url = ""

    def __init__(self, root: str) -> None:
        self._root = os.fspath(root)
        self.url = f"file://{self._root}"

    def parent(self) -> LocalStore | None:
        parent = os.path.dirname(self._root)
        return LocalStore(parent) if parent != os.path.dirname(parent) else None

    def beside(self, scheme: str, rest: str) -> LocalStore | None:
        """Another table path on this machine; None: it is elsewhere. [MT6]"""
        return LocalStore(rest) if scheme == "file" else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        first = start or 0
        with _told(self, name), _opened(self._path(name)) as file:
            file.seek(first)
            if end is None:
                return file.read()
            # it allocates everything that is requested, which is often far more
            there = os.fstat(file.fileno()).st_size
            return file.read(max(0, min(end, there) - first))

    def put(self, name: str, data: bytes) -> None:
        with _told(self, name, writing=True):
            # a sync would be most of the cost
            self._place(name, data, replace, durable=False)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        is_asked = is_taken = False

        def link(source: str, target: str) -> None:
            # Whatever fails from here on leaves open whether the name was made. That it is taken
            # says only this call's own "exists": that of another one says nothing of it. [ST5]
            nonlocal is_asked, is_taken
            is_asked = True
            try:
                os.link(source, target)
            except FileExistsError:
                is_taken = True

        try:
            self._place(name, data, link)
            path = f"{self._root}/{name}"
            if is_taken:
                with contextlib.suppress(FileNotFoundError):  # deleted since
                    # what is no plain file is neither free nor taken [ST9]
                    _check_kind(os.stat(path, follow_symlinks=False).st_mode)
            # also if it is taken: perhaps by this writer's own first attempt, which did not sync it
            _sync_folder(os.path.dirname(path))
        except OSError as error:
            meant, hint = _as_ours(self, name, error), ""
            # the name was never asked for, or is neither free nor taken
            if not is_asked or isinstance(error, _NotPlainError):
                raise meant from error
            if isinstance(meant, StoreDeniedError):
                hint = ". Where the file system has no hard links, put the table on one that has"
            raise StoreUnclearError(
                f"it is unclear whether {self.url}/{name} was created, or is durable: {meant}{hint}"
            ) from error
        return not is_taken

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        return self._below(check_name(folder) if folder else "", prefix, start_from)

    def folders(self, prefix: str) -> Sequence[str]:
        """The folders directly below; no link is one. [LK1] [SE2]"""
        with _told(self, prefix):
            place = self._enter(prefix.rstrip("/"))
            if place is None:
                return []
            found = _scan(place, prefix, prefix, "")
        return [each.name[len(prefix) : -1] for each in found if each.name.endswith("/")]

    def delete(self, names: Iterable[str]) -> None:
        for folder, inside in groupby(names, lambda name: check_name(name).rpartition("/")[0]):
            with _told(self, folder):
                place = self._enter(folder)
            if place is None:
                continue
            try:
                for name in inside:
                    try:
                        os.unlink(name.rpartition("/")[2], dir_fd=place)
                    except FileNotFoundError:
                        continue
                    # not through `_told`: gc deletes hundreds of thousands of names, and would pay
                    # for a context each time
                    except OSError as error:
                        raise _as_ours(self, name, error) from error
            finally:
                os.close(place)

    def create_output(self, name: str) -> Output:
        path = self._path(name)
        with _told(self, name, writing=True):
            return _Output(path, self._root, _make_folders(os.path.dirname(path)))

    def open_input(self, name: str) -> BinaryIO:
        with _told(self, name):
            return _opened(self._path(name))

    def check_files(self, names: Iterable[str], *, must_exist: bool = False) -> None:
        checked = set[str]()
        for name in names:
            folder = name.rpartition("/")[0]
            path = f"{self._root}/{name}" if folder in checked else self._path(name)
            checked.add(folder)
            try:
                with _told(self, name):
                    _check_kind(os.stat(path, follow_symlinks=False).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                if must_exist:
                    raise missing_file(self.url, name) from None

    def unfinished(self) -> Iterator[Unfinished]:
        """Dead writers' temporary files, and data files of writers that still run. [GC9] [ST15]"""
        for folder, name in _temporaries(self._root):
            path, final = f"{folder}/{name}", name.removeprefix(_TEMPORARY).partition("-")[2]
            if not final and _is_locked(path):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                yield Unfinished(
                    name=os.path.relpath(f"{folder}/{final or name}", self._root),
                    temporary=os.path.relpath(path, self._root),
                    size_bytes=status.st_size,
                    started=status.st_mtime,
                )

    def discard_unfinished(self, unfinished: Unfinished) -> None:
        if os.path.basename(unfinished.temporary).startswith(_TEMPORARY):
            self.delete([unfinished.temporary])

    def clock(self) -> float:
        """The time that a new file gets; works also if there is no room for content. [GC1]"""
        path = _temporary(self._root)
        with _told(self, os.path.basename(path), writing=True):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                return os.fstat(descriptor).st_mtime
            finally:
                os.close(descriptor)
                os.unlink(path)

    def filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem  # late: only readers need it

        return LocalFileSystem(), self._root

    def _path(self, name: str) -> str:
        """The path of this object; StoreError if it leads through a link. The table path itself may
        be a link. [LY1] [SE2]"""
        path = f"{self._root}/{check_name(name)}"
        end = path.find("/", len(self._root) + 1)
        while end > 0:
            try:
                if stat.S_ISLNK(os.stat(path[:end], follow_symlinks=False).st_mode):
                    raise _as_ours(self, name, _link(path[len(self._root) + 1 : end]))
            except OSError:
                break  # it does not exist; what cannot be examined cannot be opened either
            end = path.find("/", end + 1)
        return path

    def _enter(self, folder: str) -> int | None:
        """A descriptor of a folder that is reached through no link; None: there is none. [SE2]"""
        place = _open_folder(self._root, follow=True)
        for part in folder.split("/") if folder else ():
            if place is None:
                break
            outer = place
            try:
                place = _open_folder(part, inside=outer)
            finally:
                os.close(outer)
        return place

    def _place(
        self, name: str, data: bytes, place: Callable[[str, str], None], *, durable: bool = True
    ) -> None:
        """Write a temporary file and give it its name; start again if someone removed it in
        between, as a gc without a grace period does. [ST15]"""
        path = self._path(name)
        folder = os.path.dirname(path)
        for made in _make_folders(folder):
            _sync_folder(os.path.dirname(made))
        for left in reversed(range(_TRIES)):
            temporary = _temporary(folder)
            try:
                with open(temporary, "xb", buffering=0) as file:
                    _lock(file.fileno())
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                    if durable:
                        os.fsync(file.fileno())
                    return place(temporary, path)
            # a name that is taken: a mounted file system repeated the request for the first
            except (FileNotFoundError, FileExistsError):
                if not left or not os.path.isdir(folder):
                    raise
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _below(self, folder: str, prefix: str, start_from: str) -> Iterator[ObjectInfo]:
        """The objects in a folder and, each scanned only when it is reached, in those below it."""
        with _told(self, prefix):
            place = self._enter(folder)
            if place is None:
                return iter(())
            found = _scan(place, f"{folder}/" if folder else "", prefix, start_from)
        if not any(each.name.endswith("/") for each in found):
            return iter(found)
        return chain.from_iterable(
            self._below(each.name[:-1], prefix, start_from) if each.name.endswith("/") else (each,)
            for each in found
        )


class _NotPlainError(OSError):
    """The name of an object is a link, a folder or a device."""


class _Output(Output):
    """A file that gets its name when it is closed, complete and fsynced. [ST2] [ST15]"""

    def __init__(self, path: str, root: str, made: Sequence[str]) -> None:
        """root: the table path; made: folders that were made for it."""
        self._path, self._root, self._made = path, root, made
        self._temporary = _temporary(*os.path.split(path))
        self._file = open(self._temporary, "xb")  # noqa: SIM115

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            os.replace(self._temporary, self._path)
        except FileNotFoundError as error:
            raise OutputGoneError(
                f"{self._path}: the temporary file was removed while it was written, as a gc does "
                "once the job is fenced (its grace period was shorter than the job), or someone "
                "who cleans the folder. The file does not appear, and nothing lists it; run the "
                "job again."
            ) from error
        except BaseException:
            self._remove()
            raise
        _sync_folder(os.path.dirname(self._path))
        for folder in self._undurable():
            _sync_folder(os.path.dirname(folder))

    def _undurable(self) -> Iterator[str]:
        """The folders whose own names may be lost: those that were made for this file, and those of
        partitions which another writer may be making just now. A process looks at each once."""
        folder = os.path.dirname(self._path)
        while len(folder) > len(self._root) or folder in self._made:
            key = folder, os.stat(folder).st_ino
            if key in _DURABLE:
                return
            yield folder
            if len(_DURABLE) >= _MOST_DURABLE:
                _DURABLE.clear()
            _DURABLE.add(key)
            folder = os.path.dirname(folder)

    def discard(self) -> None:
        """Abort: the object never becomes visible."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):  # there may be no room for the rest
                self._file.close()
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _temporary(folder: str, final: str = "") -> str:
    """A unique name that no listing shows. That of an output ends with its final name, if that
    fits: so gc knows its job, and never judges a file by its age while it is written. [ST15]
    [GC9]"""
    name = f"{_TEMPORARY}{secrets.token_hex(8)}"
    longer = f"{name}-{final}"
    return f"{folder}/{longer if final and len(os.fsencode(longer)) <= _MOST_BYTES else name}"


def _lock(descriptor: int) -> None:
    """Lock the file, so that no gc takes it for a dead writer's; the system ends the lock with the
    process. Without locks its age decides."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _temporaries(root: str) -> Iterator[tuple[str, str]]:
    """(folder, name) of every temporary file below; unreadable folders are skipped."""
    folders = [root]
    while folders:
        folder, found = folders.pop(), []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.startswith(_TEMPORARY):
                    found.append((folder, entry.name))
        yield from found


def _open_folder(name: str, inside: int | None = None, *, follow: bool = False) -> int | None:
    """A descriptor of a folder, which saves walking down for each name; None: there is none."""
    flags = os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW)
    try:
        return os.open(name, flags, dir_fd=inside)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        with contextlib.suppress(FileNotFoundError):
            mode = 0 if follow else os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise _link(name) from None
        return None


def _opened(path: str) -> BinaryIO:
    """A plain file, open for reading; else an error at once: a FIFO would wait. [SE2]"""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            _check_kind(os.stat(path, follow_symlinks=False).st_mode)
        raise
    try:
        _check_kind(os.fstat(descriptor).st_mode)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_kind(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise _link("")
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        what = kinds.get(stat.S_IFMT(mode), "a device")
        text = f"is {what}, and an object is a plain file. Remove or rename it."
        raise _NotPlainError(errno.EINVAL, text)


def _link(folder: str) -> OSError:
    """The error for a name that is a link, or leads through one."""
    which = f"its folder {folder!r} is a symbolic link" if folder else "is a symbolic link"
    text = (
        "and below the root none is followed: it may lead outside, or be a file's second name. "
        "Put what it leads to in its place."
    )
    return _NotPlainError(errno.ELOOP, f"{which}, {text}")


def _scan(folder: int, base: str, prefix: str, start_from: str) -> list[ObjectInfo]:
    """What one folder holds in code-point order, the names of folders with a slash; closes it.
    Reading the names is not a snapshot, so they are read until two readings agree. [ST3]"""
    within = prefix.removeprefix(base) if prefix.startswith(base) else ""
    least = start_from.removeprefix(base) if start_from.startswith(base) else ""
    found = list[ObjectInfo]()
    try:
        if not least and start_from > base:
            return found
        names = _names(folder)
        wanted = united = _wanted(names, within, least)
        for _ in range(_SCANS):
            again = _names(folder)
            if again == names:
                break
            before, wanted = wanted, _wanted(again, within, least)
            if wanted == before:
                break
            names, united = again, united | wanted
        else:
            wanted = united
        del names, again  # of a million they are much
        for name in wanted:
            with contextlib.suppress(FileNotFoundError):  # deleted since: as if listed later
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    name += "/"
                    is_apart = least > name and not least.startswith(name)
                    is_apart |= not name.startswith(within) and not within.startswith(name)
                else:
                    is_apart = name < least or not name.startswith(within)
                if not is_apart:
                    name, size, modified = base + name, status.st_size, status.st_mtime
                    found.append(ObjectInfo(name=name, size_bytes=size, modified=modified))
    finally:
        os.close(folder)
    return sorted(found, key=attrgetter("name"))


def _wanted(names: Iterable[str], within: str, least: str) -> set[str]:
    """Those that may be asked for, usually a few of many: only these are examined one by one."""
    part, is_folder, _ = within.partition("/")
    first = least.partition("/")[0]
    wanted = set[str]()
    for name in names:
        # a folder whose name `first` begins with may hold later ones
        if name < first and not first.startswith(name):
            continue
        is_below = name == part if is_folder else name.startswith(part)
        if is_below and not name.startswith(_TEMPORARY):
            wanted.add(name)
    return wanted


def _names(folder: int) -> list[str]:
    """Every name in it; a folder that was removed has none."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


# folders, with their inodes, whose names this process has made durable
_DURABLE: set[tuple[str, int]] = set()
_MOST_DURABLE = 100_000


def _make_folders(folder: str) -> Sequence[str]:
    """Create the folder and its parents; the new ones, which the caller makes durable. [ST2]"""
    made: Sequence[str] = ()
    try:
        os.mkdir(folder)
    except FileExistsError:
        return ()
    except FileNotFoundError:
        made = _make_folders(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # once: a link to nowhere is there, and holds no folder
    _DURABLE.discard((folder, os.stat(folder).st_ino))  # as one that was removed may have been
    return (*made, folder)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told(store: LocalStore, name: str, *, writing: bool = False) -> Iterator[None]:
    """Translate the system's errors into ours, but those that callers distinguish."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        # a write misses no object: its folder was removed meanwhile
        if isinstance(error, FileNotFoundError) and not writing:
            raise
        raise _as_ours(store, name, error) from error


def _as_ours(store: LocalStore, name: str, error: OSError) -> StoreError:
    kind = _KINDS.get(error.errno or 0, StoreError)
    if isinstance(error, NotADirectoryError) and os.path.isfile(store._root):
        advice = "Give the folder of the table, or one that is empty or not there yet."
        return kind(f"{store.url} is a file, and a table is a folder. {advice}")
    return kind(f"{store.url}/{name}: {error.strerror or error}")


_LOCK = threading.RLock()
# the objects of all these stores: their contents, and when they were written
OBJECTS: dict[str, tuple[bytes, float]] = {}


class MemoryStore(Store):
    """One table path in the memory of this process. It ends with the process, and does not work
    under Spark, whose tasks are other processes. [ST1]"""

    identity = ""  # one lock for the one process that can see it
    url = ""

    def __init__(self, root: str) -> None:
        self._root = f"/{check_root('memory', root.strip('/'))}"
        self.url = f"memory:/{self._root}"

    def parent(self) -> MemoryStore | None:
        parent = self._root.rpartition("/")[0]
        return MemoryStore(parent) if parent else None

    def beside(self, scheme: str, rest: str) -> MemoryStore | None:
        """Another table path in this process; None: it is elsewhere. [MT6]"""
        return MemoryStore(rest) if scheme == "memory" else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        found = OBJECTS.get(self._path(name))
        if found is None:
            raise FileNotFoundError(f"{self.url}/{name}")
        return found[0][start:end]

    def put(self, name: str, data: bytes) -> None:
        with _LOCK:
            OBJECTS[self._path(name)] = bytes(data), time.time()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with _LOCK:
            if self._path(name) in OBJECTS:
                return False
            self.put(name, data)
            return True

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        base = f"{self._root}/"
        first, common = base + start_from, base + prefix
        with _LOCK:
            found = [
                ObjectInfo(name=path.removeprefix(base), size_bytes=len(data), modified=modified)
                for path, (data, modified) in OBJECTS.items()
                if path.startswith(common) and path >= first
            ]
        return iter(sorted(found, key=attrgetter("name")))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with _LOCK:
                OBJECTS.pop(self._path(name), None)

    def filesystem(self) -> tuple[Any, str]:
        from .arrow_filesystem import arrow_filesystem  # late: only readers need it

        return arrow_filesystem(self), ""

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"
