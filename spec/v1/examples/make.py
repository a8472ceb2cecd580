"""Writes the golden objects in this folder anew, if you understand what caused the change. [CP1]

A release that cannot read the objects of an earlier one cannot read the tables of its users
either: from release 0.1.0 on, the objects here are not rewritten any more, and new ones go beside
them. The values are in tests/spec/golden.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    if sys.argv[1:] != ["--rewrite"]:
        sys.exit("usage: make.py --rewrite (only if you understand what caused the change)")
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from tests.spec import golden

    golden.write()
