"""Local and other POSIX file systems: create by link, so that an object is whole or absent, and fsync what was promised. [ST1] [ST2]

O_EXCL alone would let a reader see an empty file; a rename would overwrite a winner.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from ..errors import StoreDeniedError, StoreError, StoreUnclearError
from . import linux
from .base import ObjectInfo, Output, Unfinished
from .names import check_name

_TEMPORARY = ".mc-tmp-"
_MOST_BYTES = 255  # of one component of a name
_TRIES = 8  # to give a temporary file its name, where others take it away
_SCANS = 64  # how often a folder whose names keep changing is scanned before the scans are united


class LocalStore:
    """One folder. All six calls of `store.base.Store`; survives kill -9 and power loss at any point. [ST1] [ST2]"""

    def __init__(self, root: str) -> None:
        self._root = root

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    @property
    def identity(self) -> str:
        return ""  # link is atomic by POSIX

    def above(self) -> LocalStore | None:
        parent = os.path.dirname(self._root)
        return LocalStore(parent) if parent != os.path.dirname(parent) else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        first = start or 0
        with _told(self, name), open(self._path(name), "rb") as file:
            file.seek(first)
            if end is None:
                return file.read()
            there = os.fstat(file.fileno()).st_size  # room is made for all that is asked for, and that is often far more
            return file.read(max(0, min(end, there) - first))

    def put(self, name: str, data: bytes) -> None:
        with _told(self, name, writing=True):
            self._place(name, data, linux.replace, durable=False)  # a sync would be most of what it costs

    def put_if_absent(self, name: str, data: bytes) -> bool:
        try:
            with _told(self, name, writing=True):
                self._place(name, data, os.link)
            created = True
        except FileExistsError:
            created = False  # perhaps by this very writer's first try, whose folder was never synced
        try:
            _sync_folder(os.path.dirname(self._path(name)))
        except OSError as error:  # the name is there, but a power cut could still take it back
            raise StoreUnclearError(f"{self.url}/{name} exists, but its folder could not be made durable: {error}") from error
        return created

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            check_name(folder)
        with _told(self, prefix):
            yield from self._walk(folder, prefix, start_from)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._path(name)
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:  # not by `_told`: gc deletes names by the hundred thousand, and would pay for a context of each
                raise _as_ours(self, name, error) from error

    def create_output(self, name: str) -> Output:
        path = self._path(name)
        with _told(self, name, writing=True):
            _make_folders(os.path.dirname(path))
            return _Output(path)

    def take_in(self, path: str, name: str) -> None:
        """A finished file of the same file system is durable under this name as well; FileExistsError where that is taken. [ST2] [SP13]"""
        target = self._path(name)
        with _told(self, name, writing=True):
            with open(path, "rb") as file:
                os.fsync(file.fileno())  # also of what another process wrote
            _make_folders(os.path.dirname(target))
            os.link(path, target)
            _sync_folder(os.path.dirname(target))

    def open_input(self, name: str) -> BinaryIO:
        with _told(self, name):
            path = self._path(name)
            if os.path.realpath(path) != os.path.join(os.path.realpath(self._root), name):
                raise StoreError(f"{self.url}/{name} goes through a symbolic link: it may lie outside of the root, or be there twice")
            return open(path, "rb")

    def unfinished(self) -> Iterator[Unfinished]:
        """Temporary files of writers that died, and of those that still write. [GC9] [ST15]"""
        for folder, name in _temporaries(self._root):
            path, final = f"{folder}/{name}", name.removeprefix(_TEMPORARY).partition("-")[2]
            own, taken = (os.path.relpath(each, self._root) for each in (path, f"{folder}/{final}" if final else path))
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                yield Unfinished(name=taken, temporary=own, size_bytes=status.st_size, started=status.st_mtime)

    def discard_unfinished(self, each: Unfinished) -> None:
        if os.path.basename(each.temporary).startswith(_TEMPORARY):
            self.delete([each.temporary])

    def filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem  # late: only readers need it

        return LocalFileSystem(), self._root

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _place(self, name: str, data: bytes, place: Callable[[str, str], None], *, durable: bool = True) -> None:
        """Write a temporary file and give it its name; anew where someone took it away in between, as a gc without grace does. [ST15]"""
        path = self._path(name)
        folder = os.path.dirname(path)
        _make_folders(folder)
        for left in reversed(range(_TRIES)):
            temporary = _temporary(folder)
            try:
                with open(temporary, "xb", buffering=0) as file:
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                    if durable:
                        os.fsync(file.fileno())
                return place(temporary, path)
            except FileNotFoundError:
                if not left or not os.path.isdir(folder):
                    raise
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _walk(self, folder: str, prefix: str, start_from: str) -> Iterator[ObjectInfo]:
        base = f"{folder}/" if folder else ""
        place = _open_folder(f"{self._root}/{folder}")
        if place is None:
            return
        try:
            for name in _scan(place, base, prefix, start_from):
                if name.endswith("/"):
                    yield from self._walk(base + name[:-1], prefix, start_from)
                    continue
                try:
                    status = os.stat(name, dir_fd=place, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted since the scan: as if listed a moment later
                yield ObjectInfo(name=base + name, size_bytes=status.st_size, modified=status.st_mtime)
        finally:
            os.close(place)


class _Output:
    """A file that takes its name when it is closed, whole and fsynced; `discard` leaves nothing behind. [ST2] [ST15]"""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = _temporary(*os.path.split(path))
        self._file = open(self._temporary, "xb")  # noqa: SIM115
        self.closed = False

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
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        try:
            os.replace(self._temporary, self._path)
        except FileNotFoundError as error:
            raise StoreError(
                f"{self._path}: the temporary file was removed while it was written, as a gc does that has given the job up (its grace "
                "period was shorter than the job), or someone who cleans the folder. The file does not appear, and nothing lists it; run "
                "the job again."
            ) from error
        _sync_folder(os.path.dirname(self._path))

    def discard(self) -> None:
        """Give up: the object never appears."""
        if not self.closed:
            self.closed = True
            self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)


def _temporary(folder: str, final: str = "") -> str:
    """A name that no list shows and no one else has. That of an output ends with the name that it will take, where that fits: so gc
    knows whose it is, and never goes by the age of a file that is still written. [ST15] [GC9]"""
    name = f"{_TEMPORARY}{secrets.token_hex(8)}"
    longer = f"{name}-{final}"
    return f"{folder}/{longer if final and len(os.fsencode(longer)) <= _MOST_BYTES else name}"


def _temporaries(root: str) -> Iterator[tuple[str, str]]:
    """(folder, name) of every temporary file below the root; folders that cannot be read are passed over."""
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


def _open_folder(path: str) -> int | None:
    """A descriptor of a folder, so that its names are found without walking down to it for each; None where there is none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _scan(folder: int, base: str, prefix: str, start_from: str) -> list[str]:
    """The names of one folder in code-point order, those of folders with a slash: a scan is no snapshot, so scan until two agree. [ST3]"""
    if _is_end(base, prefix, start_from):
        at_once = linux.end_at_once(folder, start_from.removeprefix(base))
        if at_once is not None:
            return sorted(name for name in at_once if not name.startswith(_TEMPORARY))
        os.lseek(folder, 0, os.SEEK_SET)
    order, seen = _scan_once(folder, base, prefix, start_from)
    if _names(folder) == order:
        return sorted(seen)
    united = seen
    for _ in range(_SCANS):
        again = _scan_once(folder, base, prefix, start_from)[1]
        if again == seen:
            return sorted(again)
        united |= again
        seen = again
    return sorted(united)


def _scan_once(folder: int, base: str, prefix: str, start_from: str) -> tuple[list[str], set[str]]:
    """(every name as the scan comes upon it, those that are asked for)."""
    if _is_end(base, prefix, start_from):
        return _scan_end(folder, start_from.removeprefix(base))
    order: list[str] = []
    found: set[str] = set()
    every = base.startswith(prefix) and base >= start_from  # then so is whatever is in there
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:  # a folder that was removed has no names
        for entry in entries:
            name = entry.name
            order.append(name)
            if name.startswith(_TEMPORARY):
                continue
            if entry.is_dir(follow_symlinks=False):
                name += "/"
            if every or _is_wanted(base + name, prefix, start_from):
                found.add(name)
    return order, found


def _is_end(base: str, prefix: str, start_from: str) -> bool:
    """Whether one whole folder is asked for from a name in it on."""
    return bool(base) and start_from.startswith(base) and prefix == base


def _scan_end(folder: int, least: str) -> tuple[list[str], set[str]]:
    """The names of a folder from one on, usually few of many: only these are looked at one by one. [ST3]"""
    first = least.partition("/")[0]
    parts = {first[:end] for end in range(1, len(first))}  # a folder of such a name may hold later ones
    order, found = _names(folder), set()
    for name in [each for each in order if each >= first or each in parts]:
        if not name.startswith(_TEMPORARY):
            with contextlib.suppress(FileNotFoundError):  # deleted since
                if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                    name += "/"
                if name >= least or (name.endswith("/") and least.startswith(name)):
                    found.add(name)
    return order, found


def _is_wanted(name: str, prefix: str, start_from: str) -> bool:
    if not name.endswith("/"):
        return name.startswith(prefix) and name >= start_from
    return (name.startswith(prefix) or prefix.startswith(name)) and (name >= start_from or start_from.startswith(name))


def _names(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _make_folders(folder: str) -> None:
    """Create the folder and its parents; each new one is durable before this returns. [ST2]"""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    if parent != folder:
        _make_folders(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told(store: LocalStore, name: str, *, writing: bool = False) -> Iterator[None]:
    """Turn the system's errors into ours; what callers tell apart (missing, taken) passes through."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not writing:  # a write misses no object: its folder went away under it
            raise
        raise _as_ours(store, name, error) from error


def _as_ours(store: LocalStore, name: str, error: OSError) -> StoreError:
    kind = StoreDeniedError if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else StoreError
    if isinstance(error, NotADirectoryError) and os.path.isfile(store._root):
        return kind(f"{store.url} is a file, and a table is a folder. Give the folder of the table, or one that is empty or not there yet.")
    return kind(f"{store.url}/{name}: {error.strerror or error}")
