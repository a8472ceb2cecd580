"""Exporters beside the exports of each commit, and readers of the exported forms that share nothing with this library: DuckDB and delta-rs.

What they show as the newest version is compared with the log, by the watermarks of that version. [EX1] [EX2] [EX4]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from tests.chaos.check import compare
from tests.chaos.world import EXPORTED, FORMATS, Actor, Phase, World
from tests.interop.clients import document, duck, quoted

import manifestcommit as mc


class Exporter(Actor):
    """Exports what it takes for the newest version, again and again."""

    def turn(self, phase: Phase) -> None:
        name, format = self.dice.choice(EXPORTED), self.dice.choice(FORMATS)
        try:
            made = self.table(name).export(format)
            self.note("exported", table=name, format=made.format, version=made.version)
        except (mc.StoreError, mc.SnapshotExpiredError) as error:
            self.note("not exported", table=name, error=type(error).__name__)
        self.pause(0.3)


class Foreigner(Actor):
    """Reads what is exported, from the disk."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._newest: dict[str, int] = {}

    def turn(self, phase: Phase) -> None:
        name, format = self.dice.choice(EXPORTED), self.dice.choice(FORMATS)
        version = 0
        try:
            version, rows = (self._iceberg if format == "iceberg" else self._delta)(self.world.urls[name])
            marks = self.world.table(name, direct=True).snapshot(version=version).watermarks
        except mc.SnapshotExpiredError:
            self.note("expired", table=name)
        except Exception as error:  # each client has errors of its own
            self._unread(name, format, version, error)
        else:
            if format == "delta" and version < self._newest.get(name, 0):
                self.violation(f"the Delta log of {name} showed version {self._newest[name]}, and shows {version}")
            self._newest[name] = max(version, self._newest.get(name, 0))
            for each in compare(rows, self.log, marks):
                self.violation(f"{name} at version {version} as {format}: {each}")
            self.note("read elsewhere", table=name, format=format, version=version)
        self.pause(0.2)

    def _unread(self, name: str, format: str, version: int, error: Exception) -> None:
        """Nothing is exported yet, or gc has taken what was read; anything else is a damage."""
        folder = Path(self.world.urls[name], "_iceberg" if format == "iceberg" else "_delta_log")
        expired = self.world.table(name, direct=True).snapshot().expired
        missing = any(text in str(error) for text in ("No such file", "not found", "No files in log segment", "does not exist"))
        if folder.exists() and not missing:
            self.violation(f"{name} as {format}, version {version} (readable from {expired}): {type(error).__name__}: {error}")
        self.note("not read elsewhere", table=name, format=format, error=str(error)[:200])

    def _iceberg(self, url: str) -> tuple[int, Any]:
        place = document(url)
        version = int(place.rpartition("/v")[2].partition(".")[0])
        return version, duck().execute(f"SELECT * FROM iceberg_scan({quoted(place)})").to_arrow_table()

    def _delta(self, url: str) -> tuple[int, Any]:
        table = deltalake.DeltaTable(url)
        found = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        return table.version(), pa.table(found)
