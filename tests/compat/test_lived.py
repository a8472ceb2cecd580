"""A table with a long life behind it, as an earlier release left it: all of it is read as that release read it, and life goes on. [CP1]

Adopted, loaded, altered, streamed into, spilled, changed by rows, compacted, collected, rewound, rolled back, with jobs of others still in
flight (live.py). What is expected was taken down when it was frozen: a failure here means that this release misreads tables that are out
there. The fixtures are never edited.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.compat import freeze, read_back
from tests.compat.test_frozen import READERS, rows_of

import manifestcommit as mc
from manifestcommit.cli.main import main

FIXTURES = Path(__file__).with_name("fixtures")
EXPECTED: dict[str, Any] = {
    path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(FIXTURES.glob(f"*/{read_back.EXPECTATIONS}"))
}
VERSIONS = [(release, int(version)) for release, each in EXPECTED.items() for version in each["versions"]]
PART = "part of 'it'"


def row(table: mc.Table, number: int, **more: str) -> pa.Table:
    """One row in the partition of null, whatever the partition columns are called now."""
    snapshot = table.snapshot()
    assert snapshot.schema is not None
    types = {field.name: field.type for field in table.dataset().schema}
    nulls = {field.name: pa.nulls(1, types[field.name]) for field in snapshot.schema.fields if field.id in snapshot.partition_by}
    return pa.table({"id": [number], **nulls, **{name: [value] for name, value in more.items()}})


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every frozen table, for reading."""
    folder = tmp_path_factory.mktemp("lived é")
    return {release: read_back.unpack(FIXTURES / release / read_back.ARCHIVE, folder / release) for release in EXPECTED}


@pytest.fixture(params=EXPECTED)
def whole(request: pytest.FixtureRequest) -> Any:
    """All that is expected of a release's table, in the words of this release."""
    expected = EXPECTED[request.param]
    jobs = {job: ["aborted" if state == "given_up" else state, version] for job, (state, version) in expected["jobs"].items()}
    return expected | {"name": request.param, "jobs": jobs}


@pytest.fixture
def table(whole: Any, roots: dict[str, Path]) -> mc.Table:
    """A release's table, for reading."""
    return mc.Table(roots[whole["name"]])


@pytest.fixture
def copied(whole: Any, roots: dict[str, Path], tmp_path: Path) -> Path:
    """A release's table, for writing."""
    return read_back.copy(roots[whole["name"]], tmp_path / "a copy")


def ids_of(table: mc.Table, version: int | None = None) -> list[int]:
    return sorted(table.dataset(version=version).to_table(columns=["id"])["id"].to_pylist())


def ids_at(whole: Any, version: int) -> list[int]:
    """What a version holds, by the expectations."""
    return [whole["rows"][at]["id"] for at in whole["versions"][str(version)]["rows"]]


def last(whole: Any) -> int:
    return max(map(int, whole["versions"]))


def job_that_is(whole: Any, state: str) -> str:
    (job,) = [job for job, (each, _) in whole["jobs"].items() if each == state]
    return job


def test_there_is_a_table_with_a_life_behind_it() -> None:
    """[CP1] One that has everything which this file is about."""
    assert EXPECTED
    for whole in EXPECTED.values():
        head = whole["versions"][str(last(whole))]
        assert min(head["spilled"]) > 0 and head["removed"] and whole["tags"] and whole["streams"]
        assert {state for state, _ in whole["jobs"].values()} >= {"prepared", "published", "running", "given_up"}
        operations = {operation for _, operation, *_ in whole["history"]}
        assert operations >= {"append", "overwrite", "rewind", "rollback", "gc", "schema", "give_up", "properties"}
        assert len({version for version, *_ in whole["history"]}) < len(whole["history"]), "no version carries two jobs"


def test_nobody_edited_the_frozen_bytes(whole: Any, table: mc.Table, roots: dict[str, Path]) -> None:
    """[CP1]"""
    assert freeze.digests(roots[whole["name"]]) == whole["objects"]


@pytest.mark.parametrize(("release", "version"), VERSIONS)
def test_every_version_says_what_it_said(release: str, version: int, roots: dict[str, Path]) -> None:
    """Rows, columns, files with their bounds, watermarks, properties, totals, commits. [CP1] [RD2]"""
    whole = EXPECTED[release]
    wanted = dict(whole["versions"][str(version)])
    for shared in ("rows", "files"):
        wanted[shared] = [whole[shared][at] for at in wanted[shared]]
    assert json.loads(json.dumps(freeze.describe(mc.Table(roots[release]), version))) == wanted


def test_expired_versions_stay_expired_and_tagged_ones_readable(whole: Any, table: mc.Table) -> None:
    """By tag, and by number. [RD3] [RD5] [GC10]"""
    fence, expired = whole["bounds"]
    assert (table.snapshot().fence, table.snapshot().expired) == (fence, expired)
    for version in range(1, expired):
        if str(version) not in whole["versions"]:
            with pytest.raises(mc.SnapshotExpiredError):
                table.snapshot(version)
    for name, (version, _) in whole["tags"].items():
        assert table.snapshot(tag=name).version == version
        assert sorted(table.dataset(tag=name).to_table()["id"].to_pylist()) == ids_at(whole, version)


def test_every_moment_shows_the_version_of_that_moment(whole: Any, table: mc.Table) -> None:
    """[RD4] [CM14]"""
    expired = whole["bounds"][1]
    for version, said in whole["versions"].items():
        if int(version) >= expired:
            moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=said["committed_at"])
            assert table.snapshot(as_of=moment).version == int(version)
            if int(version) > expired:
                assert table.snapshot(as_of=moment - dt.timedelta(microseconds=1)).version == int(version) - 1


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_the_head_and_what_tags_hold(whole: Any, table: mc.Table, reader: str) -> None:
    """[CP1] [RD7]"""
    for version in (last(whole), *(version for version, _ in whole["tags"].values())):
        wanted = [whole["rows"][at] for at in whole["versions"][str(version)]["rows"]]
        assert rows_of(READERS[reader](table.dataset(version=version))) == wanted


def test_filters_find_what_they_found(whole: Any, table: mc.Table) -> None:
    """By partition, by bounds, on renamed and widened columns: the same files, and the same rows. [RD6]"""
    assert read_back.chosen(table) == whole["filters"]


def test_changes_between_versions_are_what_they_were(whole: Any, table: mc.Table) -> None:
    """[RD8]"""
    pairs = [(start, end) for start, end, _, _ in whole["changes"]]
    assert (min(whole["tags"].values())[0], last(whole)) in pairs
    assert [[start, end, *read_back.changes(table, start, end)] for start, end in pairs] == whole["changes"]


def test_history_tags_streams_jobs_lineage_and_counts_are_what_they_were(whole: Any, table: mc.Table) -> None:
    """And a deep look at everything finds no damage. [RD3] [RD9] [RD10] [AB3] [KY6] [OB10]"""
    found = json.loads(json.dumps(read_back.chain(table)))
    assert found == {name: whole[name] for name in found}
    assert not [each for each in found["findings"] if each[0] == "damage"]


def test_what_became_of_each_job_is_known_or_known_to_be_forgotten(whole: Any, table: mc.Table) -> None:
    """[CM23]"""
    for job, (status, version) in whole["resolved"].items():
        found = table.resolve(job)
        assert (str(found), found.version) == (status, version)
    assert {status for status, _ in whole["resolved"].values()} == {"committed", "pending", "not_committed", "aborted", "forgotten"}


@pytest.mark.parametrize("command", ["history", "describe", "files", "watermarks", "changes", "jobs", "verify", "metrics"])
def test_the_command_line_shows_it(whole: Any, table: mc.Table, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[CP1]"""
    arguments = [command, table.url, *([str(whole["bounds"][1])] if command == "changes" else [])]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) is not None


# --- life goes on --------------------------------------------------------------------------------------------------------


def test_reruns_of_remembered_keys_do_nothing(whole: Any, copied: Path) -> None:
    """Also of keys whose work others carried, and of those that a rewind or a rollback undid and a rerun did again. [KY2] [KY3] [KY4]"""
    for key, version in whole["keys"].items():
        job = mc.begin(copied, key=key)
        assert job.already_committed == (version is not None), key
        job.abort()
    assert not mc.begin(copied, key="bad").already_committed, "a rollback has undone its work"
    assert mc.Table(copied).snapshot().version == last(whole)


def test_a_table_with_a_life_behind_it_is_written_on(whole: Any, copied: Path) -> None:
    """[CP1] [OB9] [WM2] [CF3]"""
    table, before = mc.Table(copied), set(ids_at(whole, last(whole)))
    stood = whole["versions"][str(last(whole))]["watermarks"]
    with pytest.raises(mc.WatermarkOverlapError):
        mc.write(row(table, 200), copied, watermarks={"MyTopic:0": (0, 100)})
    advance = {"MyTopic:0": (stood["MyTopic:0"], 2**62 + 999), "log 'é' 100%": (stood["log 'é' 100%"], "opaque-3")}
    first = mc.write(row(table, 200, new="x"), copied, watermarks=advance, merge_schema=True)
    assert first.version == last(whole) + 1
    mc.write(row(table, 201, **{PART: "a/b"}), copied, mode="overwrite", overwrite={PART: "a/b"})
    gone = {row["id"] for row in whole["rows"] if (row.get(PART) or row.get("p")) == "a/b"}
    assert set(ids_of(table)) == (before - gone) | {200, 201}
    assert table.watermarks() == stood | {source: end for source, (_, end) in advance.items()}
    assert table.verify(deep=True).is_sound


def test_a_prepared_job_of_an_earlier_release_can_be_committed(whole: Any, copied: Path) -> None:
    """[AB3] [OB6]"""
    job = job_that_is(whole, "prepared")
    assert mc.commit(copied, job).version == last(whole) + 1
    assert ids_of(mc.Table(copied)) == sorted([*ids_at(whole, last(whole)), 91])
    assert mc.begin(copied, key="prepared, undecided").already_committed


def test_a_prepared_job_of_an_earlier_release_can_be_given_up(whole: Any, copied: Path) -> None:
    """[AB4]"""
    job = job_that_is(whole, "prepared")
    assert mc.Table(copied).abort(job) == "aborted"
    with pytest.raises(mc.JobAbortedError):
        mc.commit(copied, job)
    with pytest.raises(mc.JobAbortedError):
        mc.commit(copied, job_that_is(whole, "aborted"))
    assert ids_of(mc.Table(copied)) == ids_at(whole, last(whole))


def test_what_an_earlier_release_published_is_carried_by_the_next_writer(whole: Any, copied: Path) -> None:
    """[CM19] [CM20]"""
    published = job_that_is(whole, "published")
    assert mc.Table(copied).resolve(published) == "pending"
    outcome = mc.write(row(mc.Table(copied), 301), copied)
    assert [commit.job for commit in mc.Table(copied).snapshot().commits] == [published, outcome.job_id]
    assert ids_of(mc.Table(copied)) == sorted([*ids_at(whole, last(whole)), 93, 301])
    assert mc.begin(copied, key="waiting é").already_committed
    assert mc.Table(copied).resolve(published).version == last(whole) + 1


def test_a_rerun_takes_what_an_earlier_release_had_finished(whole: Any, copied: Path) -> None:
    """Under the id of the job that died, and without writing its rows again. [AB6]"""
    before = {name for name in freeze.digests(copied) if name.endswith(".parquet")}
    columns = {name: pa.array([None], pa.int64()) for name in ("v 'renamed'", "added", "s")}
    columns["v 'renamed'"] = columns["v 'renamed'"].cast(pa.int32())
    rows = {"id": pa.array([92]), PART: pa.array(["%41"]), "day": pa.array([None], pa.date32()), **columns}
    outcome = mc.write(pa.table(rows), copied, key="daily é", recoverable=True, fingerprint="one row")
    assert outcome.job_id == job_that_is(whole, "running")
    assert {name for name in freeze.digests(copied) if name.endswith(".parquet")} == before
    assert ids_of(mc.Table(copied)) == sorted([*ids_at(whole, last(whole)), 92])


def test_gc_takes_what_it_took_and_nothing_that_is_needed(whole: Any, copied: Path) -> None:
    """What can be committed still can, and what can be read reads the same. [GC5] [GC10] [AB5] [IV7]"""
    found = read_back.collected(copied)
    assert found == whole["collected"]
    table, left = mc.Table(copied), read_back.readable(mc.Table(copied))
    assert found[2] and set(left) >= {last(whole), *(version for version, _ in whole["tags"].values())}
    for version in left:
        if version <= last(whole):  # the gc adds one
            assert ids_of(table, version) == ids_at(whole, version)
    assert table.verify(deep=True).is_sound
    job = job_that_is(whole, "prepared")
    assert table.resolve(job) == "pending"
    mc.commit(copied, job)
    assert ids_of(table) == sorted([*ids_at(whole, last(whole)), 91])


@pytest.mark.parametrize("to", ["tag", "oldest", "before the gcs"])
def test_a_rollback_leads_back_to_what_an_earlier_release_wrote(whole: Any, copied: Path, to: str) -> None:
    """Rows, columns, watermarks, tags kept. [CF13]"""
    table = mc.Table(copied)
    fence, expired = whole["bounds"]
    version = {"tag": min(each for each, _ in whole["tags"].values()), "oldest": expired, "before the gcs": fence - 1}[to]
    table.rollback(version, reason="a copy")
    said = whole["versions"][str(version)]
    found = table.dataset().to_table()
    assert rows_of(found) == [whole["rows"][at] for at in said["rows"]]
    assert [[field.name, str(field.type)] for field in found.schema] == said["columns"]
    # A source that came later stands at its origin, which is 0 for all of them here.
    assert table.watermarks() == dict.fromkeys(whole["versions"][str(last(whole))]["watermarks"], 0) | said["watermarks"]
    assert {name: [tag.version, tag.until] for name, tag in table.snapshot().tags.items()} == whole["tags"]
    mc.write(row(table, 400), copied)
    carried = table.resolve(job_that_is(whole, "published")) == "committed"  # unless its columns are not there
    assert carried == (to != "tag")
    assert ids_of(table) == sorted([*ids_at(whole, version), *([93] if carried else []), 400])
    assert table.verify(deep=True).is_sound


def test_its_manifests_are_merged_and_what_was_removed_is_dropped(whole: Any, copied: Path) -> None:
    """[GC16] [GC17]"""
    table = mc.Table(copied)
    merged = table.compact(only_manifests=True)
    assert isinstance(merged, mc.Compaction) and merged.manifests_after < merged.manifests_before
    table.drop_removed()
    head = table.snapshot()
    assert not head.removed and not head.removed_runs
    assert rows_of(table.dataset().to_table()) == [whole["rows"][at] for at in whole["versions"][str(last(whole))]["rows"]]
    assert table.files(filter=pc.field("id") == 81).num_rows == 1 and table.verify(deep=True).is_sound


def test_reading_has_changed_nothing(whole: Any, roots: dict[str, Path]) -> None:
    """[CP1] After all tests above."""
    assert freeze.digests(roots[whole["name"]]) == whole["objects"]
