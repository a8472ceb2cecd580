"""Stores over other fsspec filesystems: what is refused, and what an honest stranger does. [ST7] [ST12]"""

import secrets
import sys
from datetime import UTC, datetime
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.spec import AbstractFileSystem
from tests.kit.stores import Toy
from tests.kit.stores import toy as toy
from tests.store.places import names

from manifestcommit.errors import StoreError, StoreUnclearError, UnsafeStoreError, UsageError
from manifestcommit.store import open_store
from manifestcommit.store.base import modified_s
from manifestcommit.store.fsspec import REFUSED, doubt_about_create
from manifestcommit.store.object_store import PART_BYTES


@pytest.mark.parametrize("scheme", [*REFUSED, "simplecache::s3", "VIEWFS"])
def test_a_scheme_that_can_never_be_safe_is_refused_with_its_reason(scheme: str) -> None:
    """[ST7] [ST12]"""
    reason = REFUSED[scheme.lower().partition("::")[0]]
    with pytest.raises(UnsafeStoreError) as refused:
        open_store(f"{scheme}://somewhere:1/folder/x", {"secret": "hidden-secret"})
    assert str(refused.value).startswith(f"{scheme.lower()}://") and reason in str(refused.value)
    assert "hidden-secret" not in str(refused.value)


class Default(Toy):
    """fsspec's own create: it checks, then writes."""

    pipe_file = AbstractFileSystem.pipe_file


class DefaultAsync(AsyncFileSystem):  # type: ignore[misc]
    """fsspec's own create of the other kind."""


class AsksFirst(Toy):
    """Takes the mode, and does with it what fsspec does."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        self.held[path] = value


class TakesAnything(Toy):
    """As ossfs and webdav4: the mode disappears among the rest."""

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        self.held[path] = value


class Arrow(ArrowFSWrapper):  # type: ignore[misc]
    """As HDFS."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Default, "checks whether a name exists, then writes"),
        (DefaultAsync, "checks whether a name exists, then writes"),
        (AsksFirst, "checks whether a name exists, then writes"),
        (TakesAnything, 'does not know mode="create"'),
        (Arrow, "checks whether a name exists, then writes"),
    ],
)
def test_a_filesystem_that_does_not_create_in_one_step_is_refused_by_name(toy: str, kind: type[Any], reason: str) -> None:
    """Such a create lets two racing writers win. [ST7] [ST12]"""
    fsspec.register_implementation(toy, kind)
    with pytest.raises(UnsafeStoreError) as refused:
        open_store(f"{toy}://bucket/table")
    assert f"{toy}://" in str(refused.value) and kind.__name__ in str(refused.value) and reason in str(refused.value)


@pytest.mark.thorough
def test_what_is_known_of_creates_holds_for_the_filesystems_that_are_here() -> None:
    """The inspection must neither refuse the honest ones nor let fsspec's own pass. [ST7]"""
    from adlfs import AzureBlobFileSystem
    from fsspec.implementations.local import LocalFileSystem
    from gcsfs import GCSFileSystem
    from s3fs import S3FileSystem

    assert [doubt_about_create(kind) for kind in (AzureBlobFileSystem, GCSFileSystem, S3FileSystem, Toy)] == [""] * 4
    for scheme in ("file", "dir", "ftp", "zip", "reference", "generic", "dbfs", "webhdfs", "github"):
        assert doubt_about_create(fsspec.get_filesystem_class(scheme) if scheme != "file" else LocalFileSystem), scheme


def test_an_unknown_scheme_and_a_missing_package_say_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"nosuch:// is unknown: .*s3://, gs://, abfs://"):
        open_store("nosuch://bucket/table")
    with pytest.raises(UsageError, match=r"oss:// needs a package that is missing: .*ossfs"):
        open_store("oss://bucket/table")
    account = {"account_name": secrets.token_hex(4)}
    for package, url, extra, options in (
        ("azure.identity", "abfs://c/t", "azure", account),
        ("google.auth", "gs://b/t", "gcs", {"project": secrets.token_hex(4)}),
        ("botocore.session", "s3://b/t", "s3", {"key": secrets.token_hex(4), "secret": "s"}),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(UsageError, match=rf"pip install '\.\[{extra}\]'"):
                open_store(url, options).get("x")


def test_an_honest_filesystem_does_all_six_calls(toy: str) -> None:
    """Whether its store is honest is for the race before the first commit. [ST1] [ST3] [ST8]"""
    fsspec.register_implementation(toy, Toy)
    url = f"{toy}://bucket/lake/{secrets.token_hex(4)}"
    store = open_store(url)
    assert store.url == url and store.identity == f"{toy}://bucket" and store.parent().url == f"{toy}://bucket/lake"  # type: ignore[union-attr]
    for name in ("v/2", "v/10", "v/a b%2F🦆", "v1", "v/x/y"):
        assert store.put_if_absent(name, name.encode()) and not store.put_if_absent(name, b"late")
        assert store.get(name) == name.encode() and store.get(name, 1, 2) == name.encode()[1:2]
    assert names(store, "v/") == ["v/10", "v/2", "v/a b%2F🦆", "v/x/y"] and names(store, "v") == sorted([*names(store, "v/"), "v1"])
    assert names(store, "v/", "v/2") == ["v/2", "v/a b%2F🦆", "v/x/y"] and names(store, "none/") == []
    output = store.create_output("data/big")
    output.write(bytes(PART_BYTES + 5))
    assert names(store, "data/") == []
    output.close()
    with store.open_input("data/big") as stream:
        assert stream.read() == bytes(PART_BYTES + 5)
    store.delete([*names(store), "absent"])
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.get("v/2")


def test_a_name_that_the_filesystem_would_change_is_no_name(toy: str) -> None:
    """[LY1]"""

    class Changing(Toy):
        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path)).partition("?")[0]

    fsspec.register_implementation(toy, Changing)
    store = open_store(f"{toy}://bucket/table")
    with pytest.raises(StoreError, match="would turn this name into"):
        store.put_if_absent("a?b", b"")


def test_an_unclear_create_of_a_stranger_is_told_as_that(toy: str) -> None:
    """[ST5]"""

    class Failing(Toy):
        tried = 0

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
            Failing.tried += 1
            raise OSError("no answer for hidden-secret")

    fsspec.register_implementation(toy, Failing)
    with pytest.raises(StoreUnclearError) as unclear:
        open_store(f"{toy}://bucket/table", {"password": "hidden-secret"}).put_if_absent("v/1", b"")
    assert Failing.tried == 1 and "hidden-secret" not in str(unclear.value)


@pytest.mark.parametrize(
    "error", [PermissionError, FileNotFoundError, ValueError, TypeError, EOFError, KeyError], ids=lambda kind: kind.__name__
)
def test_only_a_taken_name_is_an_answer_of_a_stranger(toy: str, error: type[Exception]) -> None:
    """Its one call may take several steps, of which a later one failed: the object may be there. [ST5]"""

    class Late(Toy):
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
            super().pipe_file(path, value, mode)
            raise error("late")

    fsspec.register_implementation(toy, Late)
    store = open_store(f"{toy}://bucket/table-{error.__name__}")
    with pytest.raises(StoreUnclearError):
        store.put_if_absent("v/1", b"")
    assert store.put_if_absent("v/1", b"") is False


@pytest.mark.parametrize("when", [1767225600, 1767225600.0, "2026-01-01T00:00:00+00:00", datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_time_is_read_in_every_form(when: Any) -> None:
    assert modified_s({"mtime": when, "created": 1}, ("LastModified", "mtime", "created")) == 1767225600.0
    assert modified_s({"name": "a", "mtime": None}, ("LastModified", "mtime")) is None
