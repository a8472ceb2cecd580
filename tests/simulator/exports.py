"""A world whose commits are exported, and a small reader of what is exported, which looks at every object that appears or disappears.

The reader shares nothing with the exporters but the store: what it finds is compared with the chain as the oracle saw it. [EX1] [EX2] [EX4]
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow.parquet as pq
from tests.simulator.oracle import Oracle, ViolationError
from tests.simulator.simulator import Run, run
from tests.simulator.themes import Theme, program
from tests.simulator.workers import EXPECTED, Worker, World

from manifestcommit.errors import StoreError
from manifestcommit.export.exporter import export_format
from manifestcommit.log.table_context import TableContext, is_export
from manifestcommit.operations import alter
from manifestcommit.testing.faults import Died
from manifestcommit.testing.scheduler import Actor, Choices
from manifestcommit.testing.simulated_store import SimulatedStore, Space, Watcher

THEME = Theme(
    actors={
        "a": ("append", "append_keyed", "overwrite"),
        "b": ("append", "overwrite", "rollback"),
        "gc": ("gc",),
        "other gc": ("gc", "tag"),
    }
)
_FOLDER, _LOG = "_iceberg/metadata/", "_delta_log/"
_HINT = f"{_FOLDER}version-hint.text"
_FORMATS = ("iceberg", "delta")


def run_exports(seed: int) -> tuple[Run, ExportReader]:
    """One run: jobs, gcs, and two exporters beside the exports of each commit."""
    readers: list[ExportReader] = []

    def cast(world: World) -> dict[str, Callable[[Actor], None]]:
        actor = Actor(world.scheduler, "owner", 65_002)
        actor.takes_turns = False
        alter.set_properties(TableContext(SimulatedStore(world.space, actor), actor), {"export.formats": ",".join(_FORMATS)})
        readers.append(ExportReader(world.space, world.oracle, world.scheduler.fail))
        world.space.watcher = readers[0]
        programs = {name: program(world, THEME, name) for name in THEME.actors}
        return {**programs, **dict.fromkeys(("exporter", "other exporter"), exporter(world))}

    return run(THEME, Choices(seed), name="exports", seed=seed, cast=cast), readers[0]


def exporter(world: World) -> Callable[[Actor], None]:
    """Exports the head that it knows, which may be an old one, and starts over where it dies."""

    def live(actor: Actor) -> None:
        worker = Worker(world, actor)
        for number in range(3):
            order = _FORMATS if world.scheduler.choices.pick(f"order {actor.name}.{number}", 2) else _FORMATS[::-1]
            try:
                head = worker.ctx.open()
                for format in order:
                    with contextlib.suppress(*EXPECTED):
                        export_format(worker.ctx, head, format)
            except Died:
                worker.begin_life()
            except StoreError:
                continue

    return live


class ExportReader(Watcher):
    """Watches a space, and reads what is exported. shown: format -> how many times its newest version was read."""

    def __init__(self, space: Space, oracle: Oracle, fail: Callable[[BaseException], None]) -> None:
        self._space, self._oracle, self._fail = space, oracle, fail
        self._newest = dict.fromkeys(_FORMATS, 0)
        self.shown = dict.fromkeys(_FORMATS, 0)

    def appeared(self, name: str, data: bytes, actor: str) -> None:
        self._oracle.appeared(name, data, actor)
        if is_export(name):
            self._look(name, f"after {actor} put {name}")

    def gone(self, name: str, actor: str) -> None:
        self._oracle.gone(name, actor)
        self._look(name, f"after {actor} deleted {name}")

    def removed(self) -> None:
        self._oracle.removed()

    def _look(self, name: str, when: str) -> None:
        if not self._oracle.chain:
            return
        try:
            if not name.startswith(_LOG):
                self._read_iceberg()
            if not name.startswith(_FOLDER):
                self._read_delta()
        except (AssertionError, LookupError, ValueError) as error:
            violation = ViolationError(f"{when}, the export was wrong: {type(error).__name__}: {error} [EX1] [EX2] [EX4]")
            self._fail(violation)
            raise violation from error

    def _compare(self, format: str, version: int, files: set[str]) -> None:
        state = self._oracle.chain[version - 1]
        assert files == set(state.files), f"version {version} has {sorted(files)} in {format}, and {sorted(state.files)} here"

    def _bytes(self, name: str) -> bytes:
        return self._space.objects[name].data

    # --- Iceberg ----------------------------------------------------------------------------------------------------------

    def _read_iceberg(self) -> None:
        documents = [int(found[1]) for each in self._space.objects if (found := re.fullmatch(_FOLDER + r"v(\d+)\.metadata\.json", each))]
        for version in documents:
            assert version <= len(self._oracle.chain), f"document of version {version}, which is not committed"
        if _HINT not in self._space.objects:
            return
        hinted = int(self._bytes(_HINT))
        assert max(documents) >= self._newest["iceberg"], "the newest document is gone"
        if hinted < max(documents) and hinted not in documents:
            return  # the hint went back for a moment: a reader finds nothing there, and nothing wrong
        document = json.loads(self._bytes(f"{_FOLDER}v{hinted}.metadata.json"))
        assert document["current-snapshot-id"] == hinted
        for snapshot in document["snapshots"]:
            version = snapshot["snapshot-id"]
            if version == hinted == max(documents) or self._is_readable(version):
                self._compare("iceberg", version, set(self._planned(snapshot["manifest-list"])))
                self.shown["iceberg"] += 1
        self._newest["iceberg"] = max(hinted, self._newest["iceberg"])
        for path in self._planned(document["snapshots"][-1]["manifest-list"]):
            assert hinted < max(documents) or path in self._space.objects, f"{path} of the newest document is gone"

    def _planned(self, manifest_list: str) -> Iterator[str]:
        for listed in self._rows(manifest_list):
            assert len(self._bytes(_relative(listed["manifest_path"]))) == listed["manifest_length"], listed
            yield from (_relative(entry["data_file"]["file_path"]) for entry in self._rows(listed["manifest_path"]) if entry["status"] != 2)

    def _rows(self, path: str) -> Iterator[Any]:
        return iter(fastavro.reader(io.BytesIO(self._bytes(_relative(path)))))

    def _is_readable(self, version: int) -> bool:
        head = self._oracle.head.snapshot
        return version >= head.expired or version in {tag.version for tag in head.tags.values()}

    # --- Delta ------------------------------------------------------------------------------------------------------------

    def _read_delta(self) -> None:
        names = [re.fullmatch(_LOG + r"(\d{20})\.(json|checkpoint\.parquet)", each) for each in self._space.objects]
        commits = {int(found[1]): found[0] for found in names if found and found[2] == "json"}
        checkpoints = {int(found[1]): found[0] for found in names if found and found[2] != "json"}
        newest = max((*commits, *checkpoints), default=0)
        assert newest >= self._newest["delta"], f"the log went back from version {self._newest['delta']} to {newest}"
        if not newest:
            return
        self._newest["delta"] = newest
        files = {_path(add["path"]) for add in self._checkpoint(checkpoints[max(checkpoints)])}
        self._compare("delta", max(checkpoints), files)
        for version in range(max(checkpoints) + 1, newest + 1):
            for line in self._bytes(commits[version]).splitlines():
                action: dict[str, Any] = json.loads(line)
                files |= {_path(action["add"]["path"])} if "add" in action else set()
                files -= {_path(action["remove"]["path"])} if "remove" in action else set()
            self._compare("delta", version, files)
        self.shown["delta"] += 1
        for path in files:
            assert path in self._space.objects, f"{path} of the log's newest version is gone"

    def _checkpoint(self, name: str) -> list[dict[str, Any]]:
        rows = pq.read_table(io.BytesIO(self._bytes(name)), columns=["add"]).to_pylist()
        return [row["add"] for row in rows if row["add"] is not None and row["add"]["path"] is not None]

    def check_end(self) -> None:
        """Nothing is under way any more, and gc has run: both formats show the newest version, and the hint names it. [EX2]"""
        head = self._oracle.head.version
        assert self._newest == dict.fromkeys(_FORMATS, head), (self._newest, head)
        assert int(self._bytes(_HINT)) == head


def _relative(path: str) -> str:
    return path.removeprefix("sim://table/")


def _path(name: str) -> str:
    return unquote(name)
