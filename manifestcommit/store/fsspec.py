"""Any other fsspec filesystem, through fsspec's public calls, if its create is a single request;
others are refused. [ST7] [ST12]

The code of a filesystem shows whether it can create at all; whether its store keeps the promise is
tested by concurrent put-if-absent probes before the first commit.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..errors import StoreDeniedError, StoreError, UnsafeStoreError, UsageError
from .base import ObjectInfo, StorageOptions, public_endpoint
from .object_store import ObjectStore, Page, TakenError, TransientError

_HADOOP = (
    "its create checks first, then writes in steps, and a crash between them leaves half an "
    "object under a version's name for ever"
)
_READS = "nothing can be written there"
_WRAPS = (
    "it is in front of another filesystem, whose answers it may keep or change. Give the URL of "
    "that one"
)
_SERVES_FILES = (
    "it has no create that exactly one of many concurrent writers wins, and a file is seen there "
    "before it is whole"
)

REFUSED = {
    name: reason
    for names, reason in (
        ("hdfs viewfs webhdfs swebhdfs har arrow_hdfs", _HADOOP),
        ("http https github git gist data zip tar libarchive jlab jupyter pyscript", _READS),
        ("reference cached blockcache filecache simplecache dir dask generic", _WRAPS),
        ("async_wrapper asyncwrapper asynclocal", _WRAPS),
        ("ftp sftp ssh smb", _SERVES_FILES),
    )
    for name in names.split()
}
_ASKS = frozenset({"exists", "_exists", "info", "_info", "isfile", "_isfile", "lexists"})
_LOOPS = {"asynchronous", "loop"}
_PLACES = ("endpoint", "endpoint_url", "host")
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")


def check_scheme(scheme: str) -> None:
    """UnsafeStoreError for a scheme whose stores can never be committed to. [ST7]"""
    if reason := REFUSED.get(scheme.partition("::")[0]):
        raise UnsafeStoreError(
            f"{scheme}:// is refused: {reason}. Nothing was read or written. Use a local "
            "path, s3://, gs://, abfs://, memory://, or "
            "another store that creates an object only where there is none."
        )


def filesystem_class(scheme: str) -> type[Any]:
    """fsspec's class for the scheme; UnsafeStoreError or UsageError if it cannot create. [ST7]"""
    from fsspec.registry import get_filesystem_class, known_implementations

    check_scheme(scheme)
    try:
        found: type[Any] = get_filesystem_class(scheme)
    except ImportError as error:
        advice = known_implementations.get(scheme, {}).get("err") or str(error)
        raise UsageError(f"{scheme}:// needs a package that is missing: {advice}") from None
    except ValueError:
        raise UsageError(
            f"{scheme}:// is unknown: there are a local path, s3://, gs://, abfs://, "
            "memory://, and what fsspec and its plug-ins offer"
        ) from None
    if doubt := doubt_about_create(found):
        raise UnsafeStoreError(
            f"{scheme}:// is refused: {found.__module__}.{found.__qualname__} {doubt}, so "
            "that of many concurrent writers several could win. "
            "Nothing was read or written. If the store speaks S3, use s3:// and its endpoint_url."
        )
    return found


def doubt_about_create(kind: type[Any]) -> str:
    """Why `pipe_file(mode="create")` of this filesystem cannot be one conditional request; empty if
    its code shows no reason."""
    from fsspec.archive import AbstractArchiveFileSystem
    from fsspec.asyn import AsyncFileSystem
    from fsspec.implementations.arrow import ArrowFSWrapper
    from fsspec.spec import AbstractFileSystem

    if issubclass(kind, ArrowFSWrapper | AbstractArchiveFileSystem):
        return "checks whether a name exists, then writes"
    create = inspect.unwrap(kind.pipe_file)
    if create is AbstractFileSystem.pipe_file and issubclass(kind, AsyncFileSystem):
        create = inspect.unwrap(kind._pipe_file)
    if create in (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file):
        return "has no create of its own: fsspec's checks whether a name exists, then writes"
    code = getattr(create, "__code__", None)
    if code is None:
        return "has a pipe_file that can not be looked into"
    if "mode" not in inspect.signature(create).parameters and "create" not in code.co_consts:
        return 'has a pipe_file that does not know mode="create"'
    if _ASKS & set(code.co_names):
        return "checks whether a name exists, then writes"
    return ""


class FsspecStore(ObjectStore):
    """fsspec's public calls, one request each where the filesystem allows it."""

    takes = "the options of fsspec's filesystem of that name"
    tells_size = False
    parts_at_once = 1
    most_parts = 128

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        check_scheme(scheme)
        super().__init__(scheme, root, options)
        self.sections = (scheme,)
        self.connection()

    @property
    def identity(self) -> str:
        return self.bucket_url + "".join(
            f" at {public_endpoint(str(self._options[place]))}"
            for place in _PLACES
            if self._options.get(place)
        )

    def connect(self) -> Any:
        """Without caches and event loops of the caller's. [ST13]"""
        ours = {"use_listings_cache": False, "skip_instance_cache": True}
        given = {name: self._options[name] for name in self._options.keys() - _LOOPS}
        return filesystem_class(self._scheme)(**given | ours)

    def read(
        self, key: str, start: int | None, end: int | None, into: memoryview | None = None
    ) -> tuple[bytes, int]:
        found = self.request(key, lambda fs: fs.cat_file(self._path(fs, key), start=start, end=end))
        return bytes(found), 0

    def tail(self, key: str) -> tuple[bytes, int]:
        found = self.request(key, lambda fs: fs.info(self._path(fs, key)))
        if found.get("type") == "directory":
            raise FileNotFoundError(self.display_name(key))
        return b"", int(found["size"])

    def write(self, key: str, data: bytes) -> None:
        self.request(key, lambda fs: fs.pipe_file(self._path(fs, key), data))

    def create(self, key: str, data: bytes) -> None:
        """Only "exists" is an answer here: what a filesystem does in its one call, and which of its
        steps took effect before another failed, is not known. [ST5]"""

        def ask(fs: Any) -> None:
            path = self._path(fs, key)
            try:
                fs.pipe_file(path, data, mode="create")
            except (FileExistsError, NotImplementedError):
                raise
            except Exception as error:
                shown = self.display_name(key)
                text = f"{shown}: the store failed ({type(error).__name__}: {error})"
                raise TransientError(text, sent=True) from None

        self.request(key, ask, is_create=True)

    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        """All objects at once, by a walk through the folders."""

        def ask(fs: Any) -> list[ObjectInfo]:
            root = self._path(fs, "")
            fs.invalidate_cache()
            try:
                found = fs.find(f"{root}/{prefix}".rpartition("/")[0], detail=True, withdirs=False)
            except FileNotFoundError:
                return []
            return [
                _info(path.removeprefix(f"{root}/"), info)
                for path, info in found.items()
                if info.get("type") == "file"
            ]

        return Page(self.request(prefix, ask))

    def remove(self, key: str) -> None:
        self.request(key, lambda fs: fs.rm_file(self._path(fs, key)))

    # Few filesystems have reliable uploads in parts: they are kept in memory, and written as one
    # object.

    def send_part(self, key: str, upload: None, number: int, data: bytes) -> bytes:
        return data

    def finish_upload(
        self, key: str, upload: None, parts: Sequence[bytes], size_bytes: int
    ) -> None:
        self.write(key, b"".join(parts))

    def translate(self, error: Exception, shown: str) -> Exception:
        if isinstance(error, FileNotFoundError | FileExistsError | PermissionError):
            self.connection().has_answered = True
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(shown)
        if isinstance(error, FileExistsError):
            return TakenError(f"{shown}: the name is taken")
        if isinstance(error, PermissionError):
            return StoreDeniedError(f"{shown}: access denied: these credentials may not do this")
        if isinstance(error, TransientError):
            return error
        text = f"({type(error).__name__}: {error})"
        if isinstance(error, TypeError | ValueError | NotImplementedError):
            return StoreError(f"{shown}: the filesystem refuses the request {text}")
        return TransientError(f"{shown}: the store failed {text}", sent=True)

    def _path(self, fs: Any, key: str) -> str:
        path = f"{self.bucket_url}/{key}".rstrip("/")
        named = str(fs._strip_protocol(path))
        if not f"/{named}".endswith(f"/{self._bucket}/{key}".rstrip("/")):
            raise StoreError(
                f"{self.display_name(key)}: the filesystem would turn this name into {named!r}"
            )
        return named


def _info(key: str, found: dict[str, Any]) -> ObjectInfo:
    # unknown: never old enough to be removed
    when = next((found[name] for name in _TIMES if found.get(name)), time.time())
    etag = str(found.get("ETag") or found.get("etag") or "")
    return ObjectInfo(name=key, size_bytes=int(found["size"]), modified=_seconds(when), etag=etag)


def _seconds(when: Any) -> float:
    if isinstance(when, datetime):
        return when.timestamp()
    if isinstance(when, str):
        return datetime.fromisoformat(when).timestamp()
    return float(when)
