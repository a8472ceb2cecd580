"""One place has one name, and no name leaves its root. [ST4] [LY1]"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.errors import UnsafeStoreError, UsageError
from manifestcommit.store import open_store
from manifestcommit.store.base import check_name, split_url


@given(name=st.text(st.sampled_from("ab./\\% \0"), max_size=8))
def test_an_accepted_name_stays_below_its_root(name: str) -> None:
    """[LY1] [SE2]"""
    try:
        accepted = check_name(name)
    except ValueError:
        assert not name or "\0" in name or name.startswith("/") or {"", ".", ".."} & set(name.split("/"))
    else:
        assert accepted == name
        assert os.path.normpath(f"/root/{name}") == f"/root/{name}"


@pytest.mark.parametrize(
    "spelling",
    ["/lake/t", "/lake/t/", "/lake//t", "/lake/x/../t", "file:///lake/t", "file:///lake/t/", "FILE:///lake/t", "file://localhost/lake/t",
     "local:///lake/t", "file:/lake/t", Path("/lake/t"), Path("file:///lake/t")],
)  # fmt: skip
def test_every_spelling_of_a_local_root_is_one_root(spelling: str | Path) -> None:
    """[ST4]"""
    assert split_url(spelling) == ("file", "/lake/t")
    assert open_store(spelling).url == "file:///lake/t"


def test_a_relative_path_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[ST4]"""
    monkeypatch.chdir(tmp_path)
    assert open_store("a b%20").url == f"file://{tmp_path}/a b%20"


@pytest.mark.parametrize("root", ["s3:/lake/t", Path("s3://lake/t"), Path("gs://lake/t"), "dbfs:/lake/t"])
def test_a_url_that_has_lost_a_slash_is_no_folder_here(root: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would have published into a folder of its machine, and been told that all is well. [ST4]"""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="two slashes"):
        open_store(root)
    assert not list(tmp_path.iterdir())
    assert open_store(f"./{root}").url == f"file://{tmp_path}/{root}"
    assert open_store("a: b/c:/d").url == f"file://{tmp_path}/a: b/c:/d", "no scheme"


@pytest.mark.parametrize(
    ("alias", "scheme"), [("s3a", "s3"), ("s3n", "s3"), ("S3", "s3"), ("gcs", "gs"), ("az", "abfs"), ("abfss", "abfs")]
)
def test_aliases_are_one_scheme(alias: str, scheme: str) -> None:
    """s3:// compared with s3a:// once deleted live data. [ST4]"""
    assert split_url(f"{alias}://bucket/t/") == (scheme, "bucket/t")


@pytest.mark.parametrize("root", ["", "  ", "file://", "file://host/x", "file://x"])
def test_what_is_no_root_is_refused(root: str) -> None:
    with pytest.raises(UsageError):
        open_store(root)


@pytest.mark.parametrize("scheme", ["hdfs", "ftp", "viewfs"])
def test_a_store_that_proved_nothing_is_refused_by_its_name(scheme: str) -> None:
    """[ST7]"""
    with pytest.raises(UnsafeStoreError, match=f"^{scheme}://.* Nothing was read or written.*s3://"):
        open_store(f"{scheme}://bucket/t")


def test_a_url_with_credentials_is_refused_without_repeating_them() -> None:
    """[ST4] [SE1]"""
    with pytest.raises(UsageError, check=lambda error: "secret" not in str(error) and "AKIA" not in str(error)):
        open_store("s3://AKIA:secret@bucket/t")


@pytest.mark.parametrize("root", ["~/flights", "~", "~bob/x", Path("~/f"), r"C:\data\flights", "c:/data", "C:", r"\\host\x", r"lake\x"])
def test_a_path_that_a_shell_or_windows_means_otherwise_is_no_folder_here(
    root: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job would publish into a folder of that name in whatever folder it runs. [ST4]"""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="an absolute path") as caught:
        open_store(root)
    assert ("expanduser" in str(caught.value)) == str(root).startswith("~") and repr(str(root)) in str(caught.value)
    assert not list(tmp_path.iterdir())
    assert open_store(f"./{root}").url == f"file://{tmp_path}/{root}", "said in so many words"


@pytest.mark.parametrize("root", ["a~", "a/~/b", "lake/C:/x", r"lake/a\b", r"../a\b", "s3://b/~/x"])
def test_other_paths_may_hold_such_signs(root: str) -> None:
    """[ST4]"""
    assert split_url(root)[1].endswith(root.removeprefix("..").removeprefix("s3://"))
