"""The tree of errors: grouped by what a handler would do, and carried whole across processes."""

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc
from manifestcommit import errors
from manifestcommit.errors import ManifestCommitError

# name -> its base. A new error is added here on purpose: a handler somewhere relies on where it stands.
TREE = {
    "ManifestCommitError": "Exception", "CommitConflictError": "ManifestCommitError", "WatermarkError": "ManifestCommitError",
    "WatermarkGapError": "WatermarkError", "WatermarkOverlapError": "WatermarkError", "WatermarkMismatchError": "WatermarkError",
    "KeyReusedError": "ManifestCommitError", "JobFencedError": "ManifestCommitError", "JobAbortedError": "ManifestCommitError",
    "ConstraintError": "ManifestCommitError", "CheckFailedError": "ManifestCommitError", "SchemaMismatchError": "ManifestCommitError",
    "SourceError": "ManifestCommitError", "UnsupportedTypeError": "SchemaMismatchError", "OutcomeUnknownError": "ManifestCommitError",
    "TableNotFoundError": "ManifestCommitError", "NotATableError": "ManifestCommitError", "VersionNotFoundError": "ManifestCommitError",
    "SnapshotExpiredError": "VersionNotFoundError", "DataFileMissingError": "ManifestCommitError",
    "CorruptMetadataError": "ManifestCommitError", "UnsupportedFormatError": "ManifestCommitError",
    "UnsafeStoreError": "ManifestCommitError", "StoreError": "ManifestCommitError", "UndecidedError": "StoreError",
    "StoreDeniedError": "StoreError", "StoreFullError": "StoreError", "OutputGoneError": "StoreError", "StoreUnclearError": "StoreError",
    "UsageError": "ManifestCommitError",
}  # fmt: skip

# What each error carries besides its message.
CARRIES: dict[str, dict[str, object]] = {
    "CommitConflictError": {"rule": "overwrite", "mine": "day=1", "winner": "version 7 added day=1"},
    "WatermarkError": {"source": "a:0", "have": 1, "want": 2, "all_covered": True},
    "WatermarkGapError": {"source": "a:0", "have": 1, "want": 2, "all_covered": False},
    "WatermarkOverlapError": {"source": "a:0", "have": 3, "want": 2, "all_covered": True},
    "WatermarkMismatchError": {"source": "a:0", "have": "x", "want": "y", "all_covered": False},
    "OutcomeUnknownError": {"job_id": "v1-00-00"},
    "DataFileMissingError": {"path": "data/a.parquet"},
    "CorruptMetadataError": {"object_name": "_manifest/versions/1"},
}


def defined() -> dict[str, type[BaseException]]:
    return {n: c for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, BaseException)}


def made(name: str) -> ManifestCommitError:
    error = getattr(errors, name)("what happened, what is safe", **CARRIES.get(name, {}))
    assert isinstance(error, ManifestCommitError)
    return error


def test_the_tree_is_this_one() -> None:
    assert {name: cls.__bases__[0].__name__ for name, cls in defined().items()} == TREE


def test_a_wrong_argument_is_also_a_value_error() -> None:
    with pytest.raises(ValueError, match="grace"):
        raise errors.UsageError("grace must be a timedelta")


def test_no_error_of_an_outcome_is_an_oserror() -> None:
    """A retry of OSErrors around a job must not swallow a conflict or an unknown outcome. A read may miss a file."""
    assert [name for name, cls in defined().items() if issubclass(cls, OSError)] == ["DataFileMissingError"]


@pytest.mark.parametrize("name", sorted(TREE))
def test_an_error_says_its_message_and_what_it_carries(name: str) -> None:
    error = made(name)
    assert str(error) == "what happened, what is safe"
    assert {k: getattr(error, k) for k in CARRIES.get(name, {})} == CARRIES.get(name, {})


@pytest.mark.parametrize("name", sorted(TREE))
def test_an_error_survives_pickling(name: str) -> None:
    """Process pools and Spark carry errors as pickles; one that cannot be unpickled hangs a pool or hides the outcome."""
    error = made(name)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {k: getattr(copy, k) for k in CARRIES.get(name, {})} == CARRIES.get(name, {})


@pytest.mark.parametrize("name", sorted(TREE))
def test_every_error_says_for_whom_it_is(name: str) -> None:
    assert inspect.getdoc(defined()[name]), f"{name} has no docstring"


# --- of wrong calls -----------------------------------------------------------------------------------------------------
ROWS = pa.table({"flight": [1545]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    mc.write(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


def test_an_unknown_name_of_the_package_has_pythons_own_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'manifestcommit' has no attribute 'never_was'$"):
        mc.never_was  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("called", "told"),
    [
        (lambda table: table.read("x"), r"^Table\.read\(\)"),
        (lambda table: table.delete(), r"^Table\.delete\(\): missing .*'where'"),
        (lambda table: table.watermarks(1), r"^Table\.watermarks\(\)"),
        (lambda table: table.jobs(1), r"^Table\.jobs\(\)"),
        (lambda table: mc.Table(), r"^Table\(\): missing .*'path'"),
    ],
)
def test_a_wrong_call_names_the_public_class(path: str, called: Callable[[mc.Table], object], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        called(mc.Table(path))


@pytest.mark.parametrize("called", [lambda t, c: t.to_arrow(filter=c), lambda t, c: t.files(c)], ids=["to_arrow", "files"])
def test_an_unknown_column_is_said_with_the_arguments_name(path: str, called: Callable[[mc.Table, pc.Expression], object]) -> None:
    with pytest.raises(mc.errors.UsageError, match=r"^filter names the column 'nope', which the table does not have"):
        called(mc.Table(path), pc.field("nope") > 1)
