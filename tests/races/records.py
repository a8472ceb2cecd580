"""The log of a round: what each process tried and what it was told, one JSON line before and one after each operation.

A process writes to a file of its own, each line in one call, so that a kill loses what came after it and nothing else:

    {"id": "writer 0.1/3", "process": "writer 0", "operation": "write", "arguments": {…}, "begin_s": 5.25}
    {"id": "writer 0.1/3", "learned": {"job": "v7-…"}}           what it knows before it can be told; any number of these lines
    {"id": "writer 0.1/3", …, "end_s": 5.5, "outcome": "committed", "result": {"job": "v7-…", "version": 8}}

Times are seconds of the machine's monotonic clock, the same for all processes. A line without "end_s" and no later one: it was killed,
and what it tried took place or did not. Other lines have "what" instead of "id": what the process itself says, such as what broke it.
The operations that the history checker judges are made of these lines (history).

outcome: "committed": acknowledged; "refused": it changed nothing and never will; "unknown", "failed": the store did not say, or failed,
so that it took place or did not; "prepared": others may commit it; "read": it read a whole version; "gone": that was expired while it
read; "done": it claims nothing that others would have to see.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

Outcome = Literal["committed", "refused", "unknown", "failed", "prepared", "read", "gone", "done"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. outcome: None where its process did not live to be told; result: what it was told, and what it had learned before."""

    id: str
    process: str
    operation: str
    arguments: dict[str, Any]
    begin_s: float
    end_s: float | None = None
    outcome: Outcome | None = None
    result: dict[str, Any] = {}

    @property
    def ended_s(self) -> float:
        """When it was over at the latest."""
        return float("inf") if self.end_s is None else self.end_s


class Log:
    """One process' file."""

    def __init__(self, path: Path, process: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._prefix, self._process, self._count = path.stem, process, 0

    def begin(self, operation: str, arguments: Mapping[str, Any]) -> Record:
        """The record of what is about to be tried, which is written down."""
        self._count += 1
        name, now_s = f"{self._prefix}/{self._count}", time.monotonic()
        record = Record(id=name, process=self._process, operation=operation, arguments=dict(arguments), begin_s=now_s)
        begun = {name: value for name, value in msgspec.to_builtins(record).items() if name not in ("end_s", "outcome", "result")}
        self._write(begun)
        return record

    def learn(self, record: Record, **learned: Any) -> None:
        """What is known of it already, and has to be known if this process ends here."""
        self._write({"id": record.id, "learned": learned})

    def end(self, record: Record, outcome: Outcome, result: Mapping[str, Any]) -> None:
        """What it was told."""
        told = msgspec.structs.replace(record, end_s=time.monotonic(), outcome=outcome, result=dict(result))
        self._write(msgspec.to_builtins(told))

    def say(self, what: str, **more: Any) -> None:
        """Something that is no operation."""
        self._write({"what": what, "process": self._process, "at_s": time.monotonic(), **more})

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def merge(lines: Iterable[Mapping[str, Any]]) -> list[Record]:
    """The records of these lines, in the order in which they began. Lines of one process come in their order."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "id" in line:
            whole = found.setdefault(line["id"], {"result": {}})
            result = {**whole["result"], **line.get("learned", {}), **line.get("result", {})}
            whole |= {name: value for name, value in line.items() if name != "learned"}
            whole["result"] = result
    records = [msgspec.convert(each, Record) for each in found.values()]
    return sorted(records, key=lambda record: record.begin_s)
