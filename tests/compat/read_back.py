"""What a table of a long life is read as, in JSON: taken down when it is frozen, and read again by every later release.

Whatever the account of the life says (rows, watermarks, outcomes, keys) is held against what is read, before that is taken down.
Not here: the life (live.py), the comparison later on (test_lived.py).
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import os
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from tests.compat.freeze import describe, digests, shown

import manifestcommit as mc
from manifestcommit.engine.metadata.job_and_key_lookup import find_key

if TYPE_CHECKING:
    from tests.compat.live import Life

ARCHIVE, EXPECTATIONS = "lived.tar.xz", "lived.json"
POSITIONS = {"MyTopic:0": (0, 99, 100, 2**62, 2**62 + 79), "MyTopic:1": (7, 8), "late:é": (0, 29, 30, 44), "files of others": (0,)}

FILTERS: dict[str, Any] = {
    "partition": pc.field("part of 'it'") == "a b",
    "null partition": pc.field("part of 'it'").is_null(),
    "some partitions": pc.field("part of 'it'").isin(["%41", "a/b", "é 日本"]),
    "day before the calendar": pc.field("day") == dt.date(1582, 10, 4),
    "one row": pc.field("id") == 81,
    "a range": (pc.field("id") >= 40) & (pc.field("id") < 60),
    "widened": pc.field("v 'renamed'") == -(2**40),
    "null in a renamed column": pc.field("v 'renamed'").is_null(),
    "of the second column of a name": pc.field("s") == 270,
    "of an added column": pc.field("merged") == 1.5,
    "neither": ~(pc.field("part of 'it'") == "a b") & ~(pc.field("id") > 30),
    "nothing": pc.field("id") > 10_000,
}


def described(root: Path) -> dict[str, Any]:
    """Every readable version; rows and files that several of them share are told once, and named by their place in a list."""
    table = mc.Table(root)
    shared: dict[str, list[Any]] = {"rows": [], "files": []}
    versions = {}
    for version in readable(table):
        found = describe(table, version)
        for name, known in shared.items():
            known += [each for each in found[name] if each not in known]
            found[name] = [known.index(each) for each in found[name]]
        versions[str(version)] = found
    return {"versions": versions, **shared}


def readable(table: mc.Table) -> list[int]:
    """Every version that can be read: those of the history, and tagged ones."""
    tagged = {tag.version for tag in table.snapshot().tags.values()}
    return sorted(tagged | {row["version"] for row in table.history()})


def chain(table: mc.Table) -> dict[str, Any]:
    """What the table says of its history, its tags, its jobs and its sources."""
    head = table.snapshot()
    report = table.verify(deep=True)
    return {
        "history": [[row["version"], row["operation"], row["key"], row["job"], row["reason"], row["restored"]] for row in table.history()],
        "tags": {name: [tag.version, tag.until] for name, tag in head.tags.items()},
        "bounds": [head.fence, head.expired],
        "streams": {name: [each.query, each.batch, each.version] for name, each in head.streams.items()},
        "jobs": {job.job: [job.state, job.version] for job in table.jobs()},
        "verify": [report.first, report.last, report.versions, report.manifests, report.files, report.objects, report.bytes],
        "findings": sorted([each.severity, each.kind, each.object] for each in report.findings),
        "lineage": {source: [[at, _trace(table, source, at)] for at in places] for source, places in POSITIONS.items()},
    }


def _trace(table: mc.Table, source: str, position: int) -> Any:
    try:
        found = table.lineage(source, position)
    except mc.SnapshotExpiredError:
        return "expired"
    return found and [found.version, found.exact, sorted([each.path, each.version, each.start, each.end] for each in found.files)]


def chosen(table: mc.Table) -> dict[str, Any]:
    """By filter: which files, and which rows."""
    found = {}
    for name, filter in FILTERS.items():
        paths = sorted(table.files(filter=filter)["path"].to_pylist())
        found[name] = [paths, sorted(table.dataset().to_table(filter=filter)["id"].to_pylist())]
    return found


def changed(table: mc.Table) -> list[Any]:
    """Between each readable version and the next one, and between the first and the last."""
    versions = readable(table)
    pairs = [*itertools.pairwise(versions), (versions[0], versions[-1])]
    return [[start, end, *changes(table, start, end)] for start, end in pairs]


def changes(table: mc.Table, start: int, end: int) -> list[list[str]]:
    found = table.changes(start, end)
    return [sorted(found[way]["path"].to_pylist()) for way in ("added", "removed")]


def collected(root: Path) -> list[Any]:
    """What a gc that keeps as little as it may takes, and how far it goes."""
    before = digests(root)
    report = mc.gc(root, grace="0s", keep_for="0s", keep_keys=0)
    assert isinstance(report, mc.GcReport)
    return [report.fence, report.expired, sorted(before.keys() - digests(root).keys())]


def copy(root: Path, to: Path) -> Path:
    """All objects, as young as the copy: their ages are the store's, and gc asks for them."""
    copied, now = Path(shutil.copytree(root, to, copy_function=shutil.copyfile)), time.time()
    for path in copied.rglob("*"):  # in whatever order they were copied: versions have times that do not fall
        os.utime(path, (now, now))
    return copied


def pack(root: Path, archive: Path) -> None:
    """Every object of a table in one file: small ones that are much alike."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name in sorted(digests(root)):
            data = (root / name).read_bytes()
            about = tarfile.TarInfo(name)
            about.size = len(data)
            packed.addfile(about, io.BytesIO(data))


def unpack(archive: Path, root: Path) -> Path:
    """The table that was packed, every object of which is as young as its file here."""
    with tarfile.open(archive) as packed:
        for each in packed:
            content = packed.extractfile(each)
            assert content is not None
            (root / each.name).parent.mkdir(parents=True, exist_ok=True)
            (root / each.name).write_bytes(content.read())
    return root


def read_back(life: Life) -> dict[str, Any]:
    """All that is expected of the table, none of which contradicts the account of its life."""
    table = life.table
    found = described(life.root)
    with tempfile.TemporaryDirectory() as folder:
        gone = collected(copy(life.root, Path(folder, "copy")))
    expected = {
        "release": mc.__version__,
        "objects": digests(life.root),
        **found,
        **chain(table),
        "filters": chosen(table),
        "changes": changed(table),
        "resolved": resolved(table, life),
        "keys": remembered(table, life),
        "collected": gone,
    }
    hold_against(life, expected)
    return expected


def remembered(table: mc.Table, life: Life) -> dict[str, int | None]:
    """The keys of its life and the version of each; None: gc has forgotten it."""
    head = table.snapshot()
    found = {key: find_key(life.session(), head, key) for key in life.keys}
    return {key: None if record is None else record.version for key, record in found.items()}


def resolved(table: mc.Table, life: Life) -> dict[str, Any]:
    """What became of every job that the table still knows, and of those that its life left behind."""
    jobs = [*life.jobs, *(row["job"] for row in table.history()), *table.snapshot().recent_jobs]
    return {job: [str(table.resolve(job)), table.resolve(job).version] for job in dict.fromkeys(jobs)}


def hold_against(life: Life, expected: dict[str, Any]) -> None:
    """What was read is what was written, by an account that no line of the package has made."""
    for version, said in expected["versions"].items():
        assert [expected["rows"][at]["id"] for at in said["rows"]] == life.ids[int(version)], f"rows of version {version}"
        assert said["watermarks"] == life.marks[int(version)], f"watermarks of version {version}"
    assert {job: expected["resolved"][job][0] for job in life.jobs} == life.jobs
    assert [each for each in expected["findings"] if each[0] == "damage"] == []
    head = [expected["rows"][at] for at in expected["versions"][str(life.version)]["rows"]]
    assert expected["filters"]["partition"][1] == [row["id"] for row in head if row["part of 'it'"] == "a b"]
    assert shown(expected["filters"]["one row"][1]) == [81] and expected["filters"]["nothing"][1] == []
    for key, version in life.keys.items():
        assert expected["keys"][key] in (version, None if version < expected["bounds"][0] else version), key
