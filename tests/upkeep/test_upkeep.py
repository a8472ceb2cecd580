"""What `maintain` finds due, what it does, and what it leaves alone. [UK1] [UK2] [UK3] [UK4] [UK5]"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.sizes import SetBudgets
from tests.upkeep.month import Month

import manifestcommit as mc
from manifestcommit.errors import ManifestCommitError, UsageError
from manifestcommit.format.object_names import marker_name, version_name
from manifestcommit.operations.upkeep_properties import STEPS
from manifestcommit.store import register_scheme
from manifestcommit.store.local import LocalStore
from manifestcommit.upkeep import MIN_FILES


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array([0] * len(ids), pa.int64())})


def fill(path: Any, files: int = MIN_FILES) -> mc.Table:
    for number in range(files):
        mc.write(rows(number), path, key=f"k{number}")
    return mc.Table(path)


def states(found: pa.Table, step: str | None = None) -> dict[str, str]:
    """Step -> state, of the only table; step: table -> state."""
    return {row["table" if step else "step"]: row["state"] for row in found.to_pylist() if step in (None, row["step"])}


def reason(found: pa.Table, step: str) -> str:
    (row,) = (row for row in found.to_pylist() if row["step"] == step)
    return f"{row['reason']}; {row['result']}"


def ids(table: mc.Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


@pytest.fixture
def month(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Month:
    return Month(monkeypatch, tmp_path)


@pytest.fixture
def old(month: Month) -> mc.Table:
    """A table all of whose versions are so old that gc is due."""
    table = fill(month.path("t"), 3)
    month.days(3)
    return table


# --- what is due ----------------------------------------------------------------------------------------------------------


def test_small_files_become_one_and_then_nothing_is_due(tmp_path: Path) -> None:
    """[UK1] [UK2]"""
    table = fill(tmp_path / "t")
    assert states(mc.maintain(tmp_path / "t")) == {step: "done" if step == "compact" else "not due" for step in STEPS}
    assert table.files().num_rows == 1 and ids(table) == [*range(MIN_FILES)]
    version = table.version
    assert set(states(mc.maintain(table)).values()) == {"not due"} and table.version == version


def test_a_table_for_which_nothing_is_due_costs_a_few_reads(tmp_path: Path) -> None:
    """An hourly call for a thousand tables is cheap. [UK2]"""
    fill(tmp_path / "t", 3)
    counted = mc.testing.CountingStore(LocalStore(str(tmp_path / "t")))
    register_scheme("counted", lambda _: counted)
    assert set(states(mc.maintain("counted://t")).values()) == {"not due"}
    requests = counted.requests()
    assert requests.total() <= 10 and requests.keys() <= {"list", "get"}, requests


def test_few_small_files_wait_for_more(tmp_path: Path) -> None:
    """Otherwise each new file would rewrite those before. [UK2]"""
    fill(tmp_path / "t", MIN_FILES - 1)
    found = mc.maintain(tmp_path / "t")
    assert states(found)["compact"] == "not due" and f"of {MIN_FILES - 1} files" in reason(found, "compact")


def test_small_manifests_are_merged_where_no_file_is(tmp_path: Path, set_budgets: SetBudgets) -> None:
    """[UK2]"""
    set_budgets(inline_entry_bytes=0, fan_in=1000)
    table = fill(tmp_path / "t", MIN_FILES + 1)
    table.set_properties({"maintain.steps": "manifests"})
    assert states(mc.maintain(table)) == {**dict.fromkeys(STEPS, "not due"), "manifests": "done"}
    assert len(table.snapshot().manifests) == 1 and table.files().num_rows == MIN_FILES + 1


def test_an_export_that_is_behind_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[UK2] [EX2]"""
    table = fill(tmp_path / "t", 1)
    table.set_properties({"export.formats": "iceberg,delta"})
    with monkeypatch.context() as broken:
        broken.setattr("manifestcommit.commits.commit_loop.export_after_commit", lambda ctx: None)
        mc.write(rows(7), table.url)
    assert set(table.metrics().export_lag.values()) == {1}
    found = mc.maintain(table)
    assert "iceberg is 1 version behind" in reason(found, "export") and states(found)["export"] == "done"
    assert set(table.metrics().export_lag.values()) == {0}


def test_gc_runs_a_day_after_the_grace_period_and_in_an_idle_table_a_week_after(month: Month) -> None:
    """Whatever ran it, and whether anything did for a month. [UK2] [GC1]"""
    table, made = fill(month.path("t"), 3), 0
    for day in range(31):
        if day in (10, 11, 12, 13, 14, 20, 21):
            continue  # nobody was there
        made += states(mc.maintain(month.path("t")))["gc"] == "done"
        month.days(1)
    assert 3 <= made <= 5, "one for the rows, and one in a week for what a job may have left that never committed"
    assert len(table.history()) <= 3 and ids(table) == [0, 1, 2]


def test_files_of_jobs_that_died_go_also_from_a_table_that_gets_no_commits(month: Month) -> None:
    """[UK2]"""
    table, path = fill(month.path("t"), 1), month.path("t")
    for day in range(40):
        if day < 20:
            month.dead_job("t", rows(day))
        mc.maintain(path)
        month.days(1)
    assert len(month.objects("t", "data")) == 1 == table.files().num_rows


def test_gc_waits_for_a_prepared_job_that_holds_the_fence(old: mc.Table, month: Month) -> None:
    """It would list the store, and delete nothing. [UK2] [AB5]"""
    job = mc.begin(month.path("t"))
    job.write(rows(9))
    job_id = job.prepare()
    old.gc(grace="0s")
    mc.write(rows(10), month.path("t"))
    month.days(3)
    found = mc.maintain(old)
    assert states(found)["gc"] == "waits" and job_id in reason(found, "gc") and states(found)["verify"] == "waits"
    month.days(7)
    assert states(mc.maintain(old))["gc"] == "done"


def test_a_number_of_no_version_above_the_fence_does_not_hold_gc_off(month: Month) -> None:
    """The newest version, which is always young in a busy table, says nothing of the oldest one. [UK2] [LY15]"""
    table, other = fill(month.path("t"), 2), fill(month.path("other"), 4)
    stray = version_name(table.version + 1)
    month.store("t").put(stray, month.store("other").get(stray))
    table.gc(grace="0s")
    assert table.snapshot().void == (table.snapshot().fence + 1,) and other.version == 5
    done = []
    for day in range(6):
        mc.write(rows(100 + day), month.path("t"))
        done.append(states(mc.maintain(table))["gc"])
        month.days(1)
    assert "done" in done, done


def test_properties_say_which_steps_are_taken(tmp_path: Path) -> None:
    """[UK1]"""
    table = fill(tmp_path / "t")
    table.set_properties({"maintain.steps": "export, gc"})
    found = mc.maintain(table)
    assert states(found)["compact"] == "not due" and "maintain.steps" in reason(found, "compact")
    table.set_properties({"maintain.steps": "none"})
    assert set(states(mc.maintain(table)).values()) == {"not due"}
    table.set_properties({"maintain.steps": None})
    assert states(mc.maintain(table))["compact"] == "done"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maintain.steps", "compacts"),
        ("maintain.steps", ""),
        ("maintain.every", "1h"),
        ("gc.grace", "24"),
        ("gc.keep-for", "-1d"),
        ("gc.keep-versions", "0"),
        ("gc.keep-keys", "-1"),
        ("gc.keep-keys", "1.5"),
        ("gc.keep-keys-for", "x"),
        ("gc.keep", "1"),
    ],
)
def test_a_property_that_means_nothing_is_refused(tmp_path: Path, name: str, value: str) -> None:
    """[UK1]"""
    table = fill(tmp_path / "t", 1)
    with pytest.raises(UsageError, match=r"gc|maintain|keep|grace"):
        table.set_properties({name: value})


# --- retention is the table's ------------------------------------------------------------------------------------------------


def test_gc_keeps_what_the_properties_say_and_arguments_come_first(tmp_path: Path) -> None:
    """A call with the defaults does not expire what the table wants to keep. [UK1] [GC1]"""
    table = fill(tmp_path / "t", 6)
    table.set_properties({"gc.grace": "0s", "gc.keep-for": "0s", "gc.keep-versions": "3", "gc.keep-keys": "2"})
    newest = table.version
    planned = [name for name in table.plan_gc().column("name").to_pylist() if "versions/" in name]
    assert table.gc().expired == newest - 2 and len(planned) == newest - 3
    report = table.gc(keep_versions=1)
    assert report.expired > newest - 2 and table.gc(grace="24h").expired == report.expired
    assert set(states(mc.maintain(table)).values()) == {"not due"}


def test_the_report_plans_gc_by_the_properties(tmp_path: Path) -> None:
    """[UK1]"""
    table = fill(tmp_path / "t", 3)
    reason = ", the oldest readable one"
    assert reason not in table.report(gc=True).html
    table.set_properties({"gc.grace": "0s", "gc.keep-for": "0s"})
    assert reason in table.report(gc=True).html, {*table.plan_gc().column("reason").to_pylist()}


# --- nothing is changed ------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_is_due_and_changes_nothing(month: Month) -> None:
    """[UK2]"""
    table = fill(month.path("t"))
    month.dead_job("t", rows(1))
    mc.write(rows(99), month.path("t"))
    month.days(3)
    before = month.contents("t")
    found = mc.maintain(month.path("t"), dry_run=True)
    assert month.contents("t") == before
    assert {step: state for step, state in states(found).items() if state == "due"}.keys() == {"compact", "verify", "gc"}
    assert "would be deleted" in reason(found, "gc") and table.version == MIN_FILES + 2
    done = mc.maintain(month.path("t"))
    assert {step for step, state in states(done).items() if state == "done"} == {"compact", "verify", "gc"}


# --- in nobody's way ---------------------------------------------------------------------------------------------------------


def test_compaction_waits_for_a_prepared_job_that_replaces_files(tmp_path: Path) -> None:
    """Prepared work cannot be done again: where its files are gone it is lost. [UK3]"""
    table = fill(tmp_path / "t")
    other = fill(tmp_path / "other", 1)
    tx = mc.transaction([table.url, other.url])
    tx.rows(table.url).delete("id = 3")
    tx[other.url].write(rows(1))
    prepared = tx.prepare()
    found = mc.maintain(table)
    assert states(found)["compact"] == "waits" and "is prepared to replace files" in reason(found, "compact")
    prepared.commit()
    assert ids(table) == [0, 1, 2, 4, 5, 6, 7]
    mc.write(rows(8), tmp_path / "t")
    assert states(mc.maintain(table))["compact"] == "done"


def test_compaction_goes_on_beside_a_prepared_append(tmp_path: Path) -> None:
    """[UK3]"""
    table = fill(tmp_path / "t")
    job = mc.begin(tmp_path / "t")
    job.write(rows(50))
    job_id = job.prepare()
    assert states(mc.maintain(table))["compact"] == "done"
    mc.commit(tmp_path / "t", job_id)
    assert ids(table) == [*range(MIN_FILES), 50]


def test_nothing_is_deleted_from_a_damaged_table(old: mc.Table, month: Month) -> None:
    """What an orphan may still restore is there for whoever looks into it. [UK3]"""
    month.dead_job("t", rows(4))
    mc.write(rows(5), month.path("t"))
    month.days(3)
    name = old.files().column("path").to_pylist()[0]
    month.remove("t", name)
    before = month.contents("t")
    found = mc.maintain(old)
    assert (states(found)["verify"], states(found)["gc"]) == ("failed", "waits")
    assert name in reason(found, "verify") and month.contents("t") == before


def test_a_table_that_leaves_verification_out_is_collected(old: mc.Table, month: Month) -> None:
    """[UK1] [UK3]"""
    old.set_properties({"maintain.steps": "gc"})
    assert states(mc.maintain(old)) == {**dict.fromkeys(STEPS, "not due"), "gc": "done"}


# --- the budget --------------------------------------------------------------------------------------------------------------


def test_bytes_are_held_over_all_tables_and_what_is_left_is_done_next(tmp_path: Path) -> None:
    """[UK4]"""
    paths = [tmp_path / name for name in "abc"]
    sizes = [fill(path).snapshot().totals.bytes for path in paths]
    limit = int(1.5 * max(sizes))
    found = mc.maintain(paths, max_bytes=limit)
    assert sorted(states(found, "compact").values()) == ["done", "left", "left"]
    assert sum(row["bytes"] for row in found.to_pylist() if row["state"] == "done") <= limit
    while "left" in states(found, "compact").values():
        found = mc.maintain(paths, max_bytes=limit)
    assert [len(mc.Table(path).files()) for path in paths] == [1, 1, 1]


def test_a_group_above_the_limit_is_left_and_named(tmp_path: Path) -> None:
    """[UK4]"""
    table = fill(tmp_path / "t")
    found = mc.maintain(table, max_bytes=100)
    assert states(found)["compact"] == "left" and "100 are left" in reason(found, "compact")
    assert len(table.files()) == MIN_FILES


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    """[UK4]"""
    table = fill(tmp_path / "t")
    assert set(states(mc.maintain(table, max_time="0s")).values()) == {"left"} and table.version == MIN_FILES + 1


def test_time_ends_compaction_between_two_commits(tmp_path: Path, set_budgets: SetBudgets, monkeypatch: pytest.MonkeyPatch) -> None:
    """[UK4]"""
    now_s = [0.0]
    monkeypatch.setattr("manifestcommit.upkeep.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    set_budgets(batch_groups=1)
    for part in range(3):
        for number in range(MIN_FILES):
            mc.write(pa.table({"id": [number], "part": [part]}), tmp_path / "t", partition_by="part")
    table = mc.Table(tmp_path / "t")

    def slow(text: str) -> None:
        if "1 of 3" in text:
            now_s[0] += 61.0

    found = mc.maintain(table, max_time="1m", progress=slow)
    assert states(found)["compact"] == "left" == states(found)["gc"]
    assert MIN_FILES < len(table.files()) < 3 * MIN_FILES, "what was committed stays"
    assert states(mc.maintain(table))["compact"] == "done" and len(table.files()) == 3
    assert ids(table) == sorted([*range(MIN_FILES)] * 3)


# --- one holds up no other -----------------------------------------------------------------------------------------------------


def test_a_table_that_fails_holds_up_no_other(tmp_path: Path, month: Month) -> None:
    """[UK5]"""
    good, damaged = fill(tmp_path / "good"), fill(month.path("bad"))
    month.remove("bad", damaged.files().column("path").to_pylist()[0])
    found = mc.maintain([month.path("bad"), tmp_path / "none", tmp_path / "good"])
    assert len(good.files()) == 1
    failed = [(row["step"], row["result"]) for row in found.to_pylist() if row["state"] == "failed"]
    assert [step for step, _ in failed] == ["compact", "open"] and "there is no table" in failed[1][1]


def test_a_conflict_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[UK5]"""
    table = fill(tmp_path / "t")

    def lose(*given: object, **named: object) -> None:
        raise mc.errors.CommitConflictError("others", rule="contention", mine="", winner="")

    monkeypatch.setattr(mc.Table, "compact", lose)
    found = mc.maintain(table)
    assert states(found)["compact"] == "waits" and "others were faster" in reason(found, "compact")


def test_a_prefix_is_all_tables_below_it_as_of_the_call(tmp_path: Path) -> None:
    """[UK1] [LK1]"""
    lake = mc.lake(tmp_path)
    for name in ("a", "b/c"):
        fill(tmp_path / name)
    urls = [f"file://{tmp_path}/a", f"file://{tmp_path}/b/c"]
    assert states(mc.maintain(tmp_path, dry_run=True), "compact") == dict.fromkeys(urls, "due")
    assert states(mc.maintain([lake, tmp_path / "a"]), "compact") == dict.fromkeys(urls, "done")
    fill(tmp_path / "d")
    assert states(mc.maintain(str(tmp_path)), "compact")[f"file://{tmp_path}/d"] == "done"
    (tmp_path / "empty").mkdir()
    assert states(mc.maintain(tmp_path / "empty")) == {"open": "failed"}  # it may be a mistake
    assert len(mc.maintain(mc.lake(tmp_path / "empty"))) == 0


def test_a_table_that_is_given_twice_is_kept_once(tmp_path: Path) -> None:
    """[UK5]"""
    table = fill(tmp_path / "t")
    assert len(mc.maintain([table, tmp_path / "t", table.url])) == len(STEPS)
    assert len(mc.maintain(each for each in [])) == 0


@pytest.mark.parametrize(
    "wrong", [{"max_time": "1"}, {"max_bytes": 0}, {"dry_run": 1}, {"progress": 1}, {"metadata": 1}, {"message": 1}, {"storage_options": 1}]
)
def test_wrong_arguments_are_refused_before_anything_is_read(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """[SE3]"""
    with pytest.raises((UsageError, ManifestCommitError), match=next(iter(wrong))):
        mc.maintain(tmp_path / "t", **wrong)


@pytest.mark.thorough
def test_tables_on_s3_are_kept_by_the_callers_options(rgw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[UK1] [UK5]"""
    monkeypatch.setattr("manifestcommit.upkeep._GC_EVERY_S", -60.0)  # the store's clock has whole seconds
    bucket, options = rgw.bucket(), rgw.storage_options
    urls = [f"s3://{bucket}/lake/a", f"s3://{bucket}/lake/b c"]
    for url in urls:
        for number in range(MIN_FILES):
            mc.write(rows(number), url, storage_options=options)
        mc.Table(url, options).set_properties({"gc.grace": "0s", "gc.keep-for": "0s", "export.formats": "iceberg"})
    found = mc.maintain(urls, storage_options=options)
    for step in ("compact", "verify", "gc"):
        assert states(found, step) == dict.fromkeys(urls, "done"), found.to_pylist()
    assert [ids(mc.Table(url, options)) for url in urls] == [[*range(MIN_FILES)]] * 2
    assert [len(mc.Table(url, options).files()) for url in urls] == [1, 1]


def messages(table: mc.Table) -> Sequence[str]:
    return [each["message"] for each in table.history() if each["operation"] == "replace"]


def test_the_history_says_why(tmp_path: Path) -> None:
    """[OB15]"""
    table = fill(tmp_path / "t")
    mc.maintain(table)
    assert messages(table) == [f"upkeep: {MIN_FILES} small files can become 1"]
    fill(tmp_path / "u")
    mc.maintain(tmp_path / "u", message="nightly", metadata={"run": "7"})
    assert messages(mc.Table(tmp_path / "u")) == ["nightly"]


def test_a_path_that_is_no_table_is_a_lake_and_means_the_tables_below_it(tmp_path: Path) -> None:
    """Also where one of them was never finished; what is neither fails by name. [UK5] [LK1]"""
    for name in ("flights", "sales/orders"):
        fill(tmp_path / "lake" / name)
    found = mc.maintain([tmp_path / "lake", tmp_path / "nowhere"])
    assert states(found, "compact") == {f"file://{tmp_path}/lake/{name}": "done" for name in ("flights", "sales/orders")}
    (failed,) = (row for row in found.to_pylist() if row["state"] == "failed")
    assert failed["table"].endswith("/nowhere") and failed["step"] == "open" and "there is no table" in failed["result"]
    marker = tmp_path / "lake" / "half" / marker_name("0123456789abcdef")
    marker.parent.mkdir(parents=True)
    marker.write_text("0123456789abcdef")
    assert states(mc.maintain(tmp_path / "lake"), "open") == {f"file://{tmp_path}/lake/half": "failed"}
