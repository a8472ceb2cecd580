"""Traces one call through the package: which modules it enters, how often it goes from one to another, and how deep.

`python -m tests.walks` prints the counts of an append, a read, a merge and a gc, as JSON; with `--modules` also the modules of each.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

REPO = Path(__file__).resolve().parents[1]
_PACKAGE = str(REPO / "manifestcommit") + os.sep


@dataclass(slots=True, kw_only=True)
class Walk:
    """What one call has entered. calls: module, as a path below the package -> frames of functions entered in it; switches: calls from one
    module to another; depth: most frames of the package at once in one thread."""

    calls: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    depth: int = 0

    @property
    def counts(self) -> dict[str, int]:
        return {"modules": len(self.calls), "switches": self.switches, "depth": self.depth}


def walk(call: Callable[[], object]) -> Walk:
    """Make the call under a profiler, in this thread and those that it starts; what runs on import does not count."""
    found, stacks = Walk(), threading.local()

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        name = frame.f_code.co_filename
        if event not in ("call", "return") or not name.startswith(_PACKAGE) or frame.f_code.co_name == "<module>":
            return
        stack: list[str] = stacks.__dict__.setdefault("stack", [])
        if event == "return":
            if stack:
                stack.pop()
            return
        found.switches += bool(stack) and stack[-1] != name
        stack.append(name)
        found.calls[name.removeprefix(_PACKAGE)] += 1
        found.depth = max(found.depth, len(stack))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # takes None, says the documentation
    return found


def walks() -> dict[str, Walk]:
    """The walks of calls as users make them, on a table of two rows on a local disk."""
    import pyarrow as pa

    import manifestcommit as mc

    rows = pa.table({"day": ["2013-01-01"] * 2, "flight": [1545, 1714]})
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/flights"
        mc.write(rows, path, key="first")
        mc.Table(path).to_arrow()  # modules that are loaded late run code of theirs then
        mc.Table(path).merge(rows, on=["day", "flight"], key="before")
        mc.gc(path)
        return {
            "append": walk(lambda: mc.write(rows, path, key="second")),
            "read": walk(lambda: mc.Table(path).to_arrow()),
            "merge": walk(lambda: mc.Table(path).merge(rows.slice(0, 1), on=["day", "flight"], key="third")),
            "gc": walk(lambda: mc.gc(path)),
        }


def loaded_by(code: str) -> set[str]:
    """The modules of the package that a fresh interpreter has loaded after the code."""
    program = f"{code}\nimport sys, json\nprint(json.dumps(sorted(m for m in sys.modules if m.partition('.')[0] == 'manifestcommit')))"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPO, check=True, capture_output=True, text=True)
    return {*json.loads(done.stdout)}


def main() -> None:
    """Print the counts."""
    found = walks()
    shown = {name: {**each.counts, **({"entered": sorted(each.calls)} if "--modules" in sys.argv else {})} for name, each in found.items()}
    print(json.dumps(shown, indent=2 if "--modules" in sys.argv else None))


if __name__ == "__main__":
    main()
