"""`make lambda-layer`: this package, with all that it needs on S3, as a layer of AWS Lambda.

Lambda's limit is 250 MB, unpacked. pyarrow brings more than half of that, part of which nothing
here uses: Flight, a client of S3, headers, tests, and copies of its libraries.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
OUT = REPO / "build" / "lambda-layer"
MOST_BYTES = 240_000_000
# Below pyarrow/: what is left out. `libarrow_python.so.2600` has copies with other endings.
UNUSED = (
    *("*flight*", "_substrait.*", "*gandiva*", "*_s3fs*", "libarrow_s3.*", "*encryption*"),
    *("*_cpp_tests*", "libarrow_python.so", "libarrow_python.so.*.*.*", "*.pyx", "*.pxd", "*.pxi"),
    *("include", "includes", "src", "tests"),
)


def build(out: Path) -> Path:
    """Build the layer anew in this folder, and return its archive."""
    shutil.rmtree(out, ignore_errors=True)
    python = out / "python"  # where Lambda looks for packages
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, str(REPO)], check=True)
        (wheel,) = Path(wheels).iterdir()
        only = ["--only-binary", ":all:", "--no-compile", "--target", str(python)]
        subprocess.run([*pip, "install", *only, f"{wheel}[s3]"], check=True)
    for pattern in UNUSED:
        for path in (python / "pyarrow").glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # Nothing can be written where a layer is, and an archive changes times: this bytecode is not
    # compared with its source.
    flags = ["-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([sys.executable, "-m", "compileall", *flags, str(python)], check=True)
    return Path(shutil.make_archive(str(out / "layer"), "zip", out, "python"))


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Build it, and say how large it is."""
    archive, size = build(OUT), size_of(OUT / "python")
    if size > MOST_BYTES:
        raise SystemExit(f"the layer has {size:,} bytes unpacked; {MOST_BYTES:,} is the most")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    print(f"{archive.relative_to(REPO)}: {size / 1e6:.0f} MB unpacked, for {version}")


if __name__ == "__main__":
    main()
