"""Exporters beside the exports of each commit, and readers of the exported forms that share nothing with this library: DuckDB and delta-rs.

What they show as the newest version is compared with the log, by the watermarks of that version. [EX1] [EX2] [EX4]
"""

from typing import Any

import deltalake
import pyarrow as pa
from tests.chaos.check import compare
from tests.chaos.world import EXPORTED, FORMATS, Actor, Phase, World
from tests.export.clients import duck, quoted

import manifestcommit as mc
from manifestcommit.export.iceberg_export import HINT, metadata_name
from manifestcommit.store import StorageOptions, Store, open_store

GONE = ("No such file", "not found", "Not Found", "No files in log segment", "does not exist", "NoSuchKey")


class Exporter(Actor):
    """Exports what it takes for the newest version, again and again."""

    def turn(self, phase: Phase) -> None:
        name, format = self.dice.choice(EXPORTED), self.dice.choice(FORMATS)
        try:
            made = self.table(name).export(format)
            self.note("exported", table=name, format=made.format, version=made.version)
        except (mc.errors.StoreError, mc.errors.SnapshotExpiredError) as error:
            self.note("not exported", table=name, error=type(error).__name__)
        except OSError as error:  # a footer is read by pyarrow, which tells what the store said so
            if not self.world.faulty or isinstance(error, mc.errors.DataFileMissingError):
                raise
            self.note("not exported", table=name, error=type(error).__name__)
        self.pause(0.3)


class Foreigner(Actor):
    """Reads what is exported, past all faults."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._newest: dict[str, int] = {}
        self._options: dict[str, str] = {}
        if reach := world.direct:
            host, plain = reach["endpoint_url"].partition("://")[2], "ENDPOINT {}, URL_STYLE 'path', USE_SSL false"
            key, secret = quoted(reach["key"]), quoted(reach["secret"])
            duck().execute(f"CREATE OR REPLACE SECRET (TYPE s3, KEY_ID {key}, SECRET {secret}, {plain.format(quoted(host))})")
            self._options = {"AWS_ENDPOINT_URL": reach["endpoint_url"], "AWS_ACCESS_KEY_ID": reach["key"]}
            self._options |= {"AWS_SECRET_ACCESS_KEY": reach["secret"], "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}

    def turn(self, phase: Phase) -> None:
        name, format = self.dice.choice(EXPORTED), self.dice.choice(FORMATS)
        version = 0
        try:
            version, rows = (self._iceberg if format == "iceberg" else self._delta)(name)
            marks = self.world.table(name, direct=True).snapshot(version=version).watermarks
        except mc.errors.SnapshotExpiredError:
            self.note("expired", table=name)
        except Exception as error:  # each client has errors of its own
            self._unread(name, format, version, error)
        else:
            if format == "delta" and version < self._newest.get(name, 0):
                self.violation(f"the Delta log of {name} showed version {self._newest[name]}, and shows {version}")
            if format == "delta":  # Iceberg's hint may go back for a moment, and is ahead of the log
                self._newest[name] = max(version, self._newest.get(name, 0))
            for each in compare(rows, self.log, marks):
                self.violation(f"{name} at version {version} as {format}: {each}")
            self.note("read elsewhere", table=name, format=format, version=version)
        self.pause(0.2)

    def _unread(self, name: str, format: str, version: int, error: Exception) -> None:
        """Nothing is exported yet, or gc has taken what was read; anything else is a damage."""
        folder = "_iceberg/" if format == "iceberg" else "_delta_log/"
        expired = self.world.table(name, direct=True).snapshot().expired
        missing = any(text in str(error) for text in GONE)
        if not missing and any(self._store(name).list(folder)):
            self.violation(f"{name} as {format}, version {version} (readable from {expired}): {type(error).__name__}: {error}")
        self.note("not read elsewhere", table=name, format=format, error=str(error)[:200])

    def _store(self, name: str) -> Store:
        return open_store(self.world.urls[name], StorageOptions(self.world.direct))

    def _iceberg(self, name: str) -> tuple[int, Any]:
        version = int(self._store(name).get(HINT))
        place = f"{self.world.urls[name]}/{metadata_name(version)}"
        return version, duck().execute(f"SELECT * FROM iceberg_scan({quoted(place)})").to_arrow_table()

    def _delta(self, name: str) -> tuple[int, Any]:
        table = deltalake.DeltaTable(self.world.urls[name], storage_options=self._options)
        found = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        return table.version(), pa.table(found)
