"""What each actor of a simulated run did and was told, one record per operation. [IV2] [IV4]

Not here: the records that the history checker judges (operation), which say what each commit added and each read showed.
"""

from __future__ import annotations

from typing import Any

import msgspec


class OperationRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One operation of one actor.

    process: who did it, a new name after each death; begin, end: steps of the run, which order all records, end None where the actor died
    or stands still; outcome: as told to the actor: {"kind": …, "version": …}, with "error" for what was raised; None without an end.
    """

    id: int
    process: str
    operation: str
    arguments: dict[str, Any] = {}
    begin: int
    end: int | None = None
    outcome: dict[str, Any] | None = None


class History:
    """Records in the order in which the operations began."""

    def __init__(self) -> None:
        self.records: list[OperationRecord] = []

    def begin(self, actor: str, operation: str, step: int, arguments: dict[str, Any]) -> OperationRecord:
        """The operation starts now."""
        record = OperationRecord(id=len(self.records) + 1, process=actor, operation=operation, arguments=arguments, begin=step)
        self.records.append(record)
        return record
