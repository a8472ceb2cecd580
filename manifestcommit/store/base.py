"""The protocol's interface to an object store: calls over names relative to one table path; and the
options by which it is reached, whose credentials no text shows. [ST1]-[ST5] [SE1]

Implemented by store.object_store and store.local.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO
from urllib.parse import unquote

import msgspec

from ..errors import DataFileMissingError, UsageError

# Names below a table path, and table URLs in their canonical form.

TAKE_NONE = ("file", "memory")  # schemes whose stores take no storage_options
_ALIASES = {"s3a": "s3", "s3n": "s3", "local": "file", "gcs": "gs", "az": "abfs", "abfss": "abfs"}


def check_name(name: str) -> str:
    """Return the name if it stays below the table path; else ValueError. [LY1]"""
    parts = name.split("/")
    if "\0" in name or "" in parts or "." in parts or ".." in parts:
        raise ValueError(f"{name!r} is not a name below a table path")
    return name


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+", re.IGNORECASE)

# A password may contain the delimiters of its part of a URL: everything up to the last "@" may
# belong to it.
_ENDPOINT = re.compile(
    r"((?:[a-z][a-z0-9+.-]*://)?)(?:.*@)?([^/?#]*)([^?#]*)", re.DOTALL | re.IGNORECASE
)


def public_endpoint(endpoint: str) -> str:
    """A service's endpoint without secrets: user, password, query, fragment. [SE1]"""
    found = _ENDPOINT.match(endpoint)
    assert found is not None  # every part of it may be empty
    return f"{found[1]}{found[2].lower()}{found[3]}".rstrip("/")


def check_root(scheme: str, root: str) -> str:
    """The path in an object store, bucket first, of valid names; UsageError otherwise. [ST4]"""
    try:
        return check_name(root)
    except ValueError:
        raise UsageError(
            f"{scheme}://{root} is no root of a table: give the bucket and the folders below it, "
            f"as in {scheme}://bucket/lake/flights, without empty parts, `.` and `..`"
        ) from None


_FOREIGN = re.compile(r"(?P<home>~)|[a-z]:(?:[\\/]|\Z)|(?!\.\.?/)[^/]*\\", re.IGNORECASE)


def _as_this_system_means(path: str) -> str:
    """The local path; UsageError if only a shell or another system would interpret it, as a
    different place. [ST4]"""
    found = _FOREIGN.match(path)
    if found is None:
        return path
    what = "is a path of Windows, which this system would take for the name of a folder here: give"
    if found["home"]:
        what = "begins with ~, which a shell replaces by the home folder and Python does not: give "
        what += "os.path.expanduser(...) of it,"
    raise UsageError(
        f"the local path {path!r} {what} an absolute path such as /data/flights, or, for a "
        f"folder of that name here, ./{path}"
    )


def _unlike_a_url(path: str) -> str:
    """The local path; UsageError for a URL that has lost a slash, as with `pathlib`. file:/x is
    Hadoop's form of /x. [ST4]"""
    scheme, found, rest = path.partition(":/")
    if not found or not _SCHEME.fullmatch(scheme):
        return path
    if scheme.lower() == "file":
        return f"/{rest}"
    raise UsageError(
        f"{scheme}:/ looks like {scheme}:// without a slash, as a pathlib.Path of a URL does. Give "
        f"the URL as text, with two slashes; or, for a folder of that name here, ./{scheme}:/"
    )


def split_url(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(scheme, rest) of a table path: one form per place, no last slash, absolute. [ST4]"""
    text = os.fspath(path)
    if not text.strip():
        said = "a local path or a URL such as s3://bucket/table"
        raise UsageError(f"path is the table path: {said}; it is empty")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "file", os.path.abspath(_unlike_a_url(_as_this_system_means(text)))
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        # file:///x, and file://localhost/x as some tools write it
        local = rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
        if not local.startswith("/"):
            said = "the path of a file:// URL is absolute, as in file:///folder/table"
            raise UsageError(f"{said}; this one is not")
        return scheme, os.path.abspath(local)
    # A secret may contain slashes, so "user:" counts wherever its "@" comes;
    # abfs://container@account is not a secret.
    logged, place = "would end up in logs. Give", "in storage_options or in the environment."
    if re.match(r"[^/@]*:[^@]*@", rest) or ("@" in rest.split("/", 1)[0] and scheme != "abfs"):
        text = f"a {scheme}:// URL must not carry credentials"
        raise UsageError(f"{text}; they {logged} them {place}")
    if "?" in rest:
        text = f"a {scheme}:// URL of a table has no `?`: what follows one is often a signature or "
        raise UsageError(f"{text}a token, and {logged} credentials {place}")
    return scheme, rest.rstrip("/")


_SHORTEST_SECRET = 4  # shorter values ("us", "1") occur in innocent texts
_PUBLIC = (
    "account_host account_name addressing_style api_version endpoint endpoint_url host profile "
    "profile_name project region region_name signature_version"
)
_PUBLIC_NAMES = frozenset(_PUBLIC.split())
# gcsfs' names for ways to log in
_PUBLIC_VALUES = {"anon", "browser", "cache", "cloud", "google_default"}
# also from the environment, which these options do not know
_USER_OF_A_URL = re.compile(r"(https?://)\S*@")


class StorageOptions(Mapping[str, Any]):
    """Storage options, as for s3fs, adlfs or gcsfs; the repr shows names and never a value.

    Args:
        options: name -> value; by default none.

    Raises:
        UsageError: they are no mapping.

    Spec: SE1.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options: dict[str, Any] = {}
        if options is not None and not isinstance(options, Mapping):
            del options  # a text may be the secret itself, and tools print the locals of frames
            raise UsageError(
                "storage_options is a mapping of names to values, such as {'key': …, "
                "'secret': …, 'endpoint_url': …}"
            )
        self._options = {name: _copied(value) for name, value in (options or {}).items()}

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"<storage options: {', '.join(sorted(map(str, self._options))) or 'none'}>"

    def fingerprint(self) -> str:
        """Return a text that is equal for equal options within one process.

        Other types (1, "1", True) and other objects differ, whatever they print.

        Returns:
            A text of 64 hexadecimal digits, without any value.
        """
        spelled = _spelled(self._options).encode("utf-8", "surrogatepass")
        return hashlib.sha256(spelled).hexdigest()

    def scrub(self, text: str) -> str:
        """Remove the values of these options, and every user and password of an http URL.

        Values that name a place or a mode, texts of less than four characters, numbers, and the
        contents of objects are left.

        Args:
            text: the text, such as an error's message.

        Returns:
            The text with `***` in their place.

        Spec: SE1.
        """
        for value in sorted(set(_secrets(self._options)) - _PUBLIC_VALUES, key=len, reverse=True):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return _USER_OF_A_URL.sub(r"\1***@", text)


NO_OPTIONS = StorageOptions()


def _spelled(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        items = sorted(f"{name!r}:{_spelled(item)}" for name, item in value.items())
        return f"{{{','.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"{kind}({','.join(map(_spelled, value))})"
    if isinstance(value, str):
        return f"{kind} {str.__repr__(value)}"  # a class for secrets may hide its text
    if isinstance(value, int):
        return f"{kind} {value:x}"  # works also for more digits than Python prints
    is_plain = value is None or isinstance(value, float | bytes | bytearray)
    return f"{kind} {value!r}" if is_plain else f"{kind} at {id(value)}"


def _copied(value: Any) -> Any:
    """A copy of plain containers: later changes by the caller do not change an open store."""
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _secrets(value: Any, *, is_public: bool = False) -> Iterator[str]:
    """Texts that may be secret: of a place or a mode, the part of an endpoint before its `@`."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, is_public=is_public or str(name) in _PUBLIC_NAMES)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item, is_public=is_public)
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).decode("utf-8", "replace")
        yield repr(bytes(value))[2:-1]
        yield base64.b64encode(value).decode("ascii")
    elif isinstance(value, str) and not is_public:
        yield value
    elif isinstance(value, str) and "@" in value:
        user = re.sub(r"\A[\w+.-]*://", "", value.rpartition("@")[0])
        for part in (user, *user.split(":", 1)):
            yield from (part, unquote(part))


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One listed object.

    Attributes:
        name: relative to the table path, exactly as written.
        size_bytes: its size.
        modified: when it was written, by the store's clock, in Unix seconds.
        etag: what the store calls this content of the name; empty: it has no such text.
    """

    name: str
    size_bytes: int
    modified: float
    etag: str = ""


def etag_of(info: Mapping[str, Any]) -> str:
    """The ETag in what a filesystem of fsspec says of a file; empty: it says none."""
    return str(info.get("ETag") or info.get("etag") or "")


def modified_s(info: Mapping[str, Any], names: Sequence[str]) -> float | None:
    """The first of these times in what a filesystem of fsspec says of a file, in Unix seconds."""
    when = next((info[name] for name in names if info.get(name)), None)
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    if isinstance(when, datetime):
        return when.timestamp()
    return None if when is None else float(when)


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """An output that was never closed, and that no listing shows.

    Attributes:
        name: the object that it would have become, or that of a temporary file.
        upload: the store's own id of it.
        temporary: the temporary file, if it is one; empty: it is none.
        size_bytes: its size, as far as known.
        started: when it was begun, by the store's clock, in Unix seconds; 0: unknown.
    """

    name: str
    upload: str = ""
    temporary: str = ""
    size_bytes: int = 0
    started: float


class Output(ABC):
    """A stream whose object becomes visible, complete and durable, only when `close` returns.

    Attributes:
        closed: whether it is closed or discarded.

    Spec: ST2.
    """

    closed: bool = False

    @abstractmethod
    def write(self, data: Any, /) -> int:
        """Write bytes.

        Args:
            data: the bytes, or a buffer.

        Returns:
            How many bytes were written: all of them.

        Raises:
            ValueError: it is closed or discarded.
            StoreError: the store failed.
        """

    @abstractmethod
    def tell(self) -> int:
        """Return how many bytes were written so far.

        Returns:
            The number of bytes.
        """

    def flush(self) -> None:  # noqa: B027
        """Write what is buffered, as far as the store can; nothing becomes visible."""

    @abstractmethod
    def close(self) -> None:
        """Publish the object; a second call does nothing."""

    @abstractmethod
    def discard(self) -> None:
        """Drop it: no object becomes visible, and nothing is left."""


class BufferedOutput(Output):
    """An output in memory, which one call puts as a whole when it is closed. Not a BytesIO, which
    closes itself when it is garbage-collected, and closing publishes. [ST2]"""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put, self._buffer = put, bytearray()

    def write(self, data: Any, /) -> int:
        if self.closed:
            raise ValueError("write to an output that is closed")
        view = memoryview(data).cast("B")
        self._buffer += view
        return len(view)

    def tell(self) -> int:
        return len(self._buffer)

    def close(self) -> None:
        if not self.closed:
            data = bytes(self._buffer)
            self.discard()
            self._put(data)

    def discard(self) -> None:
        self.closed = True
        self._buffer.clear()


def store_beside(store: Store, url: str) -> Store | None:
    """The table path `url` in the same object store, with the same credentials; None: it is in
    another store, or this store cannot open others. [MT6] [SE2]"""
    try:
        return store.beside(*split_url(url))
    except UsageError:  # no table path
        return None


def missing_file(url: str, path: str) -> DataFileMissingError:
    """The error for a listed data file that is missing. [RD2]"""
    return DataFileMissingError(
        f"{url}: data file {path} is listed by the version that is read, and is gone. If gc "
        "expired that version meanwhile, read the newest one. Otherwise something else removed the "
        "file: `manifestcommit verify` names all files that are missing.",
        path=path,
    )


class Store(ABC):
    """One table path in one object store; a store of a user's own is a subclass.

    All names are relative to the table path, `/`-separated, and never leave it. What is not
    abstract here is that of a store which can no more than it has to.

    Arguments and errors of several methods:

    - `name`: the object.
    - `StoreError`: the store failed, perhaps in the midst of it, or while a list is iterated.
    - `FileNotFoundError`: there is no such object.

    Attributes:
        is_remote: whether a response takes longer than its processing, so that concurrent requests
            pay off.
        retries: how many requests were repeated so far.
        heads: what this process keeps of the tables that it reaches in the same way, URL -> the
            newest version that it has seen; None: it keeps nothing.
        now_s: the store's own time, Unix seconds, of its last response; None: unknown.

    Spec: CM14, LY1, RD1, ST1.
    """

    is_remote: bool = False
    retries: int = 0
    heads: MutableMapping[str, Any] | None = None
    now_s: float | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Return the canonical URL of the table path, without credentials or a trailing slash."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Return what identifies the store, without credentials, in the record of its probes.

        It is empty if the store needs no probes.

        Spec: ST12.
        """

    def parent(self) -> Store | None:
        """Open the store one level up.

        Returns:
            That store; None: there is none.

        Spec: LY6.
        """
        return None

    def beside(self, scheme: str, rest: str) -> Store | None:
        """Open another table path in the same object store, with the same credentials.

        Args:
            scheme: the scheme of its URL, without `://`.
            rest: the rest of its URL.

        Returns:
            The store of that path; None: it is in another store, or this one cannot open others.

        Raises:
            UsageError: the path is malformed.

        Spec: MT6, SE2.
        """
        return None

    @abstractmethod
    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """Read an object, or a part of it, in one request; strongly consistent.

        Args:
            start: the first byte; by default the beginning.
            end: the byte after the last one; by default the end.

        Returns:
            The bytes from `start` to `end`; empty if these are beyond the object's end.
        """

    def get_tagged(self, name: str, end: int) -> tuple[bytes, str]:
        """Return the first bytes of an object, and what a list calls its content.

        Args:
            name: see `Store`.
            end: how many bytes at most.

        Returns:
            The bytes, and the ETag of the list's `ObjectInfo`, without quotes; "": it is not known.

        Raises:
            FileNotFoundError: see `Store`.
            StoreError: see `Store`.

        Spec: RD1.
        """
        return self.get(name, 0, end), ""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write an object as a whole; the last writer wins.

        Readers never see a partial object. A power failure may undo it, or damage its content.

        Args:
            data: its content.

        Spec: ST2.
        """

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create an object atomically (put-if-absent): one of all concurrent creators wins.

        Args:
            data: its content.

        Returns:
            True for exactly one creator; False if the name is taken.

        Raises:
            StoreUnclearError: the outcome is ambiguous: this call may have created the object.
            StoreError: the store failed, and this call created nothing.

        Spec: ST1.
        """

    @abstractmethod
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        """List every object whose name begins with a prefix, each once.

        Plain names of one folder (ASCII letters, digits, `.`, `-`, `_`) are in the order of their
        code points; nothing relies on any other order.

        Args:
            prefix: the prefix; empty for every object.
            start_from: only names that are not below this one; by default all.

        Returns:
            The objects.

        Spec: ST3.
        """

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are not an error.

        Args:
            names: the objects.
        """

    def create_output(self, name: str) -> Output:
        """Open a stream for a data file, whose name no other writer has.

        Returns:
            The stream; the object is visible when it is closed.

        Spec: ST2.
        """
        check_name(name)
        return BufferedOutput(lambda data: self.put(name, data))

    def open_input(self, name: str) -> BinaryIO:
        """Open a seekable stream over an object, for Parquet footers and column reads.

        Returns:
            The stream, for reading bytes.
        """
        return io.BytesIO(self.get(name))

    @abstractmethod
    def filesystem(self) -> tuple[Any, str]:
        """Return what pyarrow reads data files with.

        Returns:
            A `pyarrow.fs.FileSystem`, and the path of the table path in it.
        """

    def folders(self, prefix: str) -> Sequence[str]:
        """List the folders directly below a prefix, in any order.

        Here by one list request for each folder, which skips what it holds.

        Args:
            prefix: the folders above, each with a slash; empty for the table path.

        Returns:
            Their names.

        Spec: LK1.
        """
        found, start = list[str](), prefix
        while True:
            for info in self.list(prefix, start_from=start):
                name, slash, _ = info.name.removeprefix(prefix).partition("/")
                if slash:
                    found.append(name)
                    start = f"{prefix}{name}0"  # the character after the slash
                    break
            else:
                return found

    def check_files(self, names: Iterable[str], *, must_exist: bool = False) -> None:  # noqa: B027
        """Check that data files are plain files, for readers that open paths themselves.

        A store whose objects are no files has nothing to check.

        Args:
            names: the files.
            must_exist: whether a missing one is an error, if there is something to check; by
                default it is not.

        Raises:
            StoreError: one is a link, is reached through one, or is no plain file.
            DataFileMissingError: one is missing.

        Spec: RD2, SE2.
        """

    def unfinished(self) -> Iterator[Unfinished]:
        """List what was begun below the table path and not finished, if this store keeps such.

        Some of it may still be finished.

        Returns:
            The unfinished outputs, in any order.

        Spec: GC9.
        """
        return iter(())

    def discard_unfinished(self, unfinished: Unfinished) -> None:  # noqa: B027
        """Remove an unfinished output, so that it never becomes an object.

        One that is finished or gone meanwhile is left as it is, without an error.

        Args:
            unfinished: the output, as `unfinished` lists it.

        Spec: GC9.
        """
