"""The trace of a simulated run: one line for each store call, short enough to be read. [IV3]"""

from __future__ import annotations

import re

from ..format import object_names

_JOB = re.compile(r"v(\d+)-[0-9a-f]{16}-([0-9a-f]{4})0*([0-9a-f]+)(-[0-9a-f]+)?")
_VERSION = re.compile(re.escape(object_names.VERSIONS) + r"0*(\d+)\.json\.zst")


class Trace:
    """Lines in the order of calls, each with its result. names: of the actors, by number."""

    def __init__(self, names: dict[int, str] | None = None) -> None:
        self.names = dict(names or {})
        self._lines: list[list[str]] = []

    def call(self, actor: str, kind: str, name: str, fault: str) -> int:
        """Record a call; returns the number of its line."""
        self._lines.append([actor, kind, name, fault, ""])
        return len(self._lines) - 1

    def answer(self, line: int, shown: str) -> None:
        """Record its result."""
        self._lines[line][4] = shown

    def note(self, actor: str, text: str) -> None:
        """Add a line that is not a call: the beginning or end of an operation."""
        self._lines.append([actor, "--", text, "", ""])

    def text(self) -> str:
        """All lines."""
        width = max((10, *(len(line[0]) for line in self._lines)))
        return "\n".join(
            f"{number:5} {actor:{width}} {kind:7} {self._short(name)}"
            + (f"  !{fault}" if fault else "")
            + (f"  -> {shown}" if shown else "")
            for number, (actor, kind, name, fault, shown) in enumerate(self._lines, start=1)
        )

    def _short(self, name: str) -> str:
        """Job ids as their base version and the actor's draw, versions as their number."""
        return _JOB.sub(self._job, _VERSION.sub(r"version \1", name)).replace(
            f"{object_names.ROOM}/", ""
        )

    def _job(self, match: re.Match[str]) -> str:
        number = int(match[2], 16)
        return f"<{self.names.get(number, number)}#{int(match[3], 16)} born {match[1]}>"
