"""Rows that are to be gone for good: what holds them is found, and goes, whatever stops the call. [ER1] [ER2] [ER3] [ER4]"""

import contextlib
import datetime as dt
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.erase.world import ADA, KINDS, base, jobs, people, telling
from tests.kit.command import Run
from tests.kit.faults import dying, lives
from tests.kit.sizes import PROOF, SetBudgets, at_calls, rest_thorough

import manifestcommit as mc
from manifestcommit.format import object_names
from manifestcommit.log.table_context import TableContext
from manifestcommit.store import Store, open_store
from manifestcommit.testing.faults import Died, Fault, FaultStore

PLAIN = KINDS["plain"]
_NUMBERS = itertools.count()


def until_done(table: mc.Table, where: str, *, between: Callable[[], object] = lambda: None, **given: Any) -> mc.Erasure:
    """Call it until it is done, a few times at most. between: is called after each that left it open."""
    for _ in range(4):
        found = table.erase(where, reason="request 17", grace="0s", drop_tags=True, abort_jobs=True, **given)
        if found.state == "done":
            return found
        between()
    raise AssertionError(found.waiting)


CASES = list(itertools.product(["memory", "local"], KINDS, [False, True]))


@pytest.mark.parametrize(("scheme", "name", "spilled"), rest_thorough(CASES, ("memory", "nested", True)))
def test_every_object_that_tells_of_her_is_found_and_goes(
    tmp_path: Path, scheme: str, name: str, spilled: bool, set_budgets: SetBudgets
) -> None:
    """By a reader that knows nothing of tables; what is found besides is metadata of files with her. [ER1] [ER2]"""
    url = str(tmp_path / "table") if scheme == "local" else f"memory://erase{next(_NUMBERS)}/table"
    if spilled:
        set_budgets(inline_entry_bytes=0, inline_keys=1)
    kind = KINDS[name]
    table = base(url, kind)
    left = jobs(url, kind)
    rest = [row for row in people(table) if ADA not in row]

    held = table.holders(kind.where).to_pylist()
    names = {row["name"] for row in held}
    assert telling(table.url) <= names, telling(table.url) - names
    assert {"data file", "version", "tag", "job", "job object", "export"} <= {row["kind"] for row in held}
    assert sum(row["rows"] or 0 for row in held if row["why"] == "the newest version lists it") == 3
    assert ("manifest" in {row["kind"] for row in held}) == spilled

    done = until_done(table, kind.where)
    assert telling(table.url) == set()
    assert done.waiting == () and done.at is not None and done.version is not None
    assert people(table) == rest
    assert list(table.snapshot().tags) == ["before"] and len(table.to_arrow(tag="before")) == 2
    assert table.verify(deep=True).is_sound
    assert table.erasure("request 17") == msgspec.structs.replace(done, rows=None)
    assert set(table.metrics().export_lag.values()) == {0}
    for job in left:
        with pytest.raises(mc.errors.ManifestCommitError):
            job.commit()
    assert people(table) == rest


# --- it may be killed at any request


def over(store: Store) -> mc.Table:
    """The table on this store."""
    table = mc.Table(store.url)
    table._ctx = TableContext(store)
    return table


def small(url: str) -> mc.Table:
    """Two versions with her, a tag of one, and one without."""
    mc.write(PLAIN.rows("Bob"), url, key="first")
    mc.write(PLAIN.rows(ADA, "Cem"), url, key="second")
    mc.Table(url).tag("with her")
    mc.write(PLAIN.rows("Dan"), url, key="third")
    return mc.Table(url)


def effects(store: FaultStore) -> list[int]:
    return [call.number for call in store.calls if call.kind in ("put", "put_if_absent", "delete", "close")]


@pytest.mark.parametrize("fault", rest_thorough(["dies_before", "dies_after", "answer_lost"], "dies_after"))
@at_calls
def test_a_call_that_ends_at_any_request_is_repeated_and_deletes_once(fault: Fault, set_budgets: SetBudgets, step: int) -> None:
    """[ER2] [IV4]"""
    set_budgets(inline_entry_bytes=0)
    whole = FaultStore(open_store(f"memory://kills{next(_NUMBERS)}/table"))
    small(whole.url)
    assert until_done(over(whole), PLAIN.where).state == "done"
    numbers = effects(whole)
    assert len(numbers) > 15
    for number in numbers if PROOF else numbers[:: 2 * step]:
        inner = open_store(f"memory://kills{next(_NUMBERS)}/table")
        rest = [row for row in people(small(inner.url)) if ADA not in row]
        with contextlib.suppress(Died, mc.errors.ManifestCommitError):
            until_done(over(FaultStore(inner, {number: fault})), PLAIN.where)
        table = mc.Table(inner.url)
        assert [row for row in people(table) if ADA not in row] == rest
        if table.erasure("request 17").state == "done":
            assert telling(inner.url) == set()
        until_done(table, PLAIN.where)
        assert telling(inner.url) == set() and people(table) == rest
        assert table.verify(deep=True).is_sound


def passed_on(url: str, to: str, copy: str) -> None:
    """To the table that follows, and to the clone."""
    mc.load(mc.sources.table(url), to)
    mc.clone(url, copy)


def until_gone_everywhere(*urls: str) -> None:
    """urls: the table, one that follows it, and a clone."""
    url, to, copy = urls
    until_done(mc.Table(url), PLAIN.where, between=lambda: passed_on(*urls), followers=[to], clones=[copy])


def erase_and_die(kind: str, name: str, urls: tuple[str, str, str]) -> None:
    with dying(1, "before", [kind], name=name):
        until_gone_everywhere(*urls)


KILLS = [("create_output", ""), ("put_if_absent", object_names.VERSIONS), ("put", object_names.HINT), ("delete", "0")]


@pytest.mark.parametrize(("kind", "name"), rest_thorough(KILLS, ("delete", "0")))
def test_a_process_that_is_killed_is_followed_by_another(tmp_path: Path, kind: str, name: str) -> None:
    """kill -9, where exports, a tag, a table that follows and a clone belong to it; readers go on in between. [ER2] [ER4]"""
    url, to, copy = urls = (str(tmp_path / "table"), str(tmp_path / "followed"), str(tmp_path / "clone"))
    mc.write(PLAIN.rows("Bob"), url, key="first")
    mc.clone(url, copy)
    table = small(url)
    table.set_properties({"export.formats": "iceberg,delta", "gc.grace": "0s"})
    table.tag("without her", version=2)
    whole = people(table)
    rest = [row for row in whole if ADA not in row]
    passed_on(*urls)
    assert not lives(erase_and_die, kind, name, urls)
    assert people(mc.Table(url)) in (whole, rest)
    assert len(mc.Table(url).to_arrow(tag="without her")) == 1
    until_gone_everywhere(*urls)
    assert telling(url) == telling(copy) == set() and people(mc.Table(url)) == people(mc.Table(copy)) == rest
    assert set(mc.Table(url).metrics().export_lag.values()) == {0} and len(mc.Table(url).to_arrow(tag="without her")) == 1
    assert mc.Table(to).erase(PLAIN.where, reason="of the other", grace="0s").state == "done" and telling(to) == set()


# --- what has to be decided first


def objects(url: str) -> dict[str, bytes]:
    store = open_store(url)
    return {info.name: store.get(info.name) for info in store.list("")}


def test_tags_and_jobs_that_hold_her_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    """[ER4]"""
    url = str(tmp_path / "table")
    table = small(url)
    job = mc.begin(url, key="prepared")
    job.write(PLAIN.rows(ADA))
    job.prepare()
    before = objects(url)
    for given, said in [({}, "tag with her"), ({"drop_tags": True}, f"job {job.id}"), ({"abort_jobs": True}, "tag with her")]:
        with pytest.raises(mc.errors.UsageError, match=said):
            table.erase(PLAIN.where, reason="request 17", **given)
    assert objects(url) == before
    table.untag("with her")
    table.abort(job.id)
    assert table.erase(PLAIN.where, reason="request 17", grace="0s").state == "done"
    assert telling(url) == set()


def test_a_dry_run_says_what_holds_her_and_changes_nothing(tmp_path: Path) -> None:
    """[ER4]"""
    url = str(tmp_path / "table")
    table = small(url)
    before = objects(url)
    found = table.erase(PLAIN.where, reason="request 17", dry_run=True)
    assert (found.state, found.rows, found.version) == ("planned", 1, None)
    assert any("1 tag" in text for text in found.waiting)
    assert table.erasure("request 17").state == "unknown"
    assert objects(url) == before


def test_nothing_expires_before_the_grace_period_is_over_and_readers_go_on(tmp_path: Path) -> None:
    """What was opened can be read meanwhile; it is done in a later call. [ER2] [ER3] [GC1]"""
    url = str(tmp_path / "table")
    table = small(url)
    table.untag("with her")
    opened = table.dataset()
    found = table.erase(PLAIN.where, reason="request 17")
    assert (found.state, found.rows) == ("open", 1)
    assert len(opened.to_table()) == 4 and len(table.to_arrow()) == 3
    known = table.erasure("request 17")
    assert known.state == "open" and known.version == found.version
    assert known.ends is not None and known.ends - dt.datetime.now(dt.UTC) > dt.timedelta(hours=23)
    assert any("can be read until gc runs" in text for text in known.waiting)
    again = table.erase(PLAIN.where, reason="request 17", grace="0s")
    assert (again.state, again.rows) == ("done", 0)
    at = table.erasure("request 17").at
    for number in range(3):
        mc.write(PLAIN.rows("Eve"), url, key=f"later {number}")
        table.gc(grace="0s", keep_for="0s")
    assert table.erasure("request 17").at >= at


def test_a_reason_stands_for_one_condition(tmp_path: Path) -> None:
    """Nor does the table keep the condition. [ER2]"""
    url = str(tmp_path / "table")
    table = small(url)
    table.erase(PLAIN.where, reason="request 17", drop_tags=True)
    with pytest.raises(mc.errors.KeyReusedError, match="a reason of its own"):
        table.erase("person = 'Bob'", reason="request 17", drop_tags=True)
    assert table.erase(PLAIN.where, reason="request 17", grace="0s").state == "done"
    with pytest.raises(mc.errors.KeyReusedError):
        table.erase("person = 'Bob'", reason="request 17")
    assert "Bob" in str(people(table)) and telling(url) == set()
    mc.write(PLAIN.rows(ADA), url)
    later = table.erase(PLAIN.where, reason="request 17", grace="0s")
    assert later.state == "open" and "another reason" in later.waiting[-1] and table.erasure("request 17").state == "done"


def test_rows_that_come_later_are_said_and_not_deleted_under_the_same_reason(tmp_path: Path) -> None:
    """A job in flight commits them; another reason erases them, and then both are done. [ER2]"""
    url = str(tmp_path / "table")
    table = small(url)
    job = mc.begin(url, key="in flight")
    job.write(PLAIN.rows(ADA))
    table.erase(PLAIN.where, reason="request 17", drop_tags=True)
    job.commit()
    found = table.erase(PLAIN.where, reason="request 17", grace="0s")
    assert found.state == "open" and ADA in str(people(table))
    assert any("the newest version lists it" in text for text in found.waiting)
    assert table.erase(PLAIN.where, reason="request 18", grace="0s").state == "done"
    assert table.erase(PLAIN.where, reason="request 17", grace="0s").state == "done"
    assert telling(url) == set()


def test_a_rollback_to_a_version_with_her_begins_it_anew(tmp_path: Path) -> None:
    """The keys go back with the rows. [ER2] [KY7]"""
    url = str(tmp_path / "table")
    table = small(url)
    version = table.version
    table.erase(PLAIN.where, reason="request 17", drop_tags=True)
    table.rollback(version, reason="too early")
    assert ADA in str(people(table)) and table.erasure("request 17").state == "unknown"
    until_done(table, PLAIN.where)
    assert telling(url) == set()


# --- tables that belong to it


def test_nothing_expires_before_the_followers_have_passed(tmp_path: Path) -> None:
    """[ER4]"""
    url, to = str(tmp_path / "table"), str(tmp_path / "followed")
    table = small(url)
    mc.load(mc.sources.table(url), to)
    found = table.erase(PLAIN.where, reason="request 17", drop_tags=True, grace="0s", followers=[to])
    assert found.state == "open" and any("has followed up to version" in text for text in found.waiting)
    assert table.snapshot().expired == 1
    mc.load(mc.sources.table(url), to)
    assert table.erase(PLAIN.where, reason="request 17", grace="0s", followers=[to]).state == "done"
    mc.load(mc.sources.table(url), to)
    changes = mc.Table(to).to_arrow(filter=PLAIN.where)["_change_type"].to_pylist()
    assert sorted(changes) == ["delete", "insert"]
    with pytest.raises(mc.errors.UsageError, match="has no watermark of"):
        table.erase("person = 'Bob'", reason="request 18", followers=[str(tmp_path / "table")])


@pytest.mark.parametrize("formats", ["", "iceberg,delta"])
def test_a_clone_has_to_be_without_her_and_is_not_erased_itself(tmp_path: Path, formats: str) -> None:
    """Nor may its exports tell of her. [ER3] [ER4] [CN5]"""
    url, to = str(tmp_path / "table"), str(tmp_path / "clone")
    table = small(url)
    if formats:
        table.set_properties({"export.formats": formats, "gc.grace": "0s"})
    mc.clone(url, to)
    with pytest.raises(mc.errors.UsageError, match="is a clone"):
        mc.Table(to).erase(PLAIN.where, reason="request 17")
    with pytest.raises(mc.errors.UsageError, match="is a table of its own"):
        table.erase(PLAIN.where, reason="request 17", drop_tags=True, clones=[url])
    for said in ("is a clone up to version", "1 data file"):
        found = table.erase(PLAIN.where, reason="request 17", drop_tags=True, grace="0s", clones=[to])
        assert found.state == "open" and any(f"{mc.Table(to).url}" in text and said in text for text in found.waiting)
        assert any(f"`manifestcommit clone {table.url} {mc.Table(to).url}`" in text for text in found.waiting)
        mc.clone(url, to)
    assert table.erase(PLAIN.where, reason="request 17", grace="0s", clones=[to]).state == "done"
    assert telling(url) == telling(to) == set()


def test_a_tag_that_is_older_than_a_clone_is_named(tmp_path: Path) -> None:
    """`clone` deletes nothing as long as the table can go back to what the clone never had. [ER4] [CN5]"""
    url, to = str(tmp_path / "table"), str(tmp_path / "clone")
    table = small(url)
    table.set_properties({"gc.grace": "0s"})
    table.tag("old", version=2)
    mc.clone(url, to)
    given = {"reason": "request 17", "drop_tags": True, "grace": "0s", "clones": [to]}
    for _ in range(3):
        found = table.erase(PLAIN.where, **given)
        mc.clone(url, to)
    assert found.state == "open" and all("drop tag old, whose version the clone lacks, and call" in text for text in found.waiting)
    table.untag("old")
    for _ in range(2):
        table.erase(PLAIN.where, **given)
        mc.clone(url, to)
    assert table.erase(PLAIN.where, **given).state == "done" and telling(to) == set()


def test_refused_rows_go_as_well(tmp_path: Path) -> None:
    """[ER1] [ER2]"""
    url = str(tmp_path / "table")
    table = small(url)
    table.add_constraint("early", "flight >= 0")
    late = PLAIN.rows(ADA, "Fay").set_column(1, "flight", pa.array([-1, -2]))
    mc.write(late, url, key="refused", on_violation="quarantine")
    assert telling(f"{url}.refused")
    held = table.holders(PLAIN.where).to_pylist()
    assert {row["table"] for row in held} == {table.url, f"{table.url}.refused"}
    until_done(table, PLAIN.where)
    assert telling(url) == telling(f"{url}.refused") == set()
    assert mc.Table(f"{url}.refused").to_arrow()["person"].to_pylist() == ["Fay"]


def test_files_of_other_programs_are_found_and_go_only_where_that_was_said(tmp_path: Path) -> None:
    """Adopted ones with a dictionary of all values, copies, and those whose folder alone tells. [ER1]"""
    url = tmp_path / "table"
    (url / "person=x").mkdir(parents=True)
    names = pa.array([ADA, "Bob", "Bob"]).dictionary_encode()
    pq.write_table(pa.table({"flight": [1, 2, 3], "name": names}), url / "person=x" / "a.parquet")
    table = mc.Table(url)
    table.adopt()
    (url / f"person={ADA}").mkdir()
    pq.write_table(pa.table({"flight": [1], "name": ["Bob"]}), url / f"person={ADA}" / "b.parquet")
    (url / "notes.txt").write_text(f"{ADA} called")
    where = f"name = '{ADA}' OR person = '{ADA}'"
    held = {row["name"]: row["kind"] for row in table.holders(where).to_pylist()}
    assert telling(str(url)) <= held.keys()
    found = table.erase(where, reason="request 17", grace="0s")
    assert found.state == "open" and any("foreign=True" in text for text in found.waiting)
    while found.state == "open":
        found = table.erase(where, reason="request 17", grace="0s", foreign=True)
    assert telling(str(url)) == set()
    assert people(table) == ["{'flight': 2, 'name': 'Bob', 'person': 'x'}", "{'flight': 3, 'name': 'Bob', 'person': 'x'}"]


def test_a_column_that_was_renamed_is_looked_at_in_old_files(tmp_path: Path) -> None:
    """And other partitions than now. [ER1] [SC6] [SC10]"""
    url = str(tmp_path / "table")
    table = small(url)
    table.rename_column("person", "passenger")
    mc.write(pa.table({"passenger": [ADA, "Eve"], "flight": [1, 2]}), url, key="renamed")
    mc.write(table.to_arrow(), url, mode="overwrite", replace_schema=True, partition_by="passenger", key="again")
    assert telling(url) <= {row["name"] for row in table.holders(f"passenger = '{ADA}'").to_pylist()}
    until_done(table, f"passenger = '{ADA}'")
    assert telling(url) == set() and len(table.to_arrow()) == 4
    with pytest.raises(mc.errors.UsageError, match="person"):
        table.holders(PLAIN.where)


def test_a_column_that_was_dropped_and_added_again_is_looked_at_as_both(tmp_path: Path) -> None:
    """Files that are still listed keep the values of the dropped one until they are rewritten. [ER1]"""
    url = str(tmp_path / "table")
    table = small(url)
    table.drop_column("person")
    table.add_column("person", "string")
    assert telling(url) <= {row["name"] for row in table.holders(PLAIN.where).to_pylist()}
    found = table.erase(PLAIN.where, reason="request 17", drop_tags=True, grace="0s")
    assert (found.state, found.rows) == ("open", 0)
    mc.write(table.to_arrow(), url, mode="overwrite")
    until_done(table, PLAIN.where)
    assert telling(url) == set() and len(table.to_arrow()) == 4


def test_what_cannot_be_looked_at_may_hold_her(tmp_path: Path) -> None:
    """An object that is damaged, of a kind that nobody knows, or was not finished. [ER1]"""
    url = tmp_path / "table"
    table = small(str(url))
    (url / "broken.parquet").write_bytes(b"PAR1 no PAR1")
    (url / "_manifest" / "jobs" / "x").mkdir(parents=True)
    (url / "_manifest" / "jobs" / "x" / "prepared.json.zst").write_bytes(b"no zstd")
    (url / "_manifest" / "manifests").mkdir(exist_ok=True)
    (url / "_manifest" / "manifests" / "x-1.parquet").write_bytes(b"PAR1 no PAR1")
    (url / "_delta_log").mkdir()
    (url / "_delta_log" / f"{1:020d}.json").write_bytes(b"{")
    output = open_store(str(url)).create_output(f"00000-{'0' * 16}-0-v1-{'0' * 16}-{'0' * 32}.parquet")
    output.write(b"something")
    nobody = "person = 'nobody at all'"
    held = {row["kind"]: row["rows"] for row in table.holders(nobody).to_pylist()}
    output.discard()
    assert held == dict.fromkeys(("data file", "job object", "manifest", "export", "unfinished"))


@pytest.mark.thorough
def test_the_command_says_how_far_it_is(tmp_path: Path, run: Run) -> None:
    """[ER2] [ER3] [SE4]"""
    url = str(tmp_path / "table")
    small(url)
    words = ["erase", url, "--where", PLAIN.where, "--reason", "request 17", "--grace", "0s"]
    assert run(*words).status == 2  # nobody to ask
    planned = run(*words, "--dry-run", "--json")
    assert (planned.status, json.loads(planned.out)["state"]) == (0, "planned")
    assert run(*words, "--yes").status == 2  # the tag
    assert run("holders", url, "--where", PLAIN.where, "--json").status == 1
    done = run(*words, "--yes", "--drop-tags", "--json")
    assert (done.status, json.loads(done.out)["state"]) == (0, "done")
    assert run("holders", url, "--where", PLAIN.where).status == 0


def test_manifests_forget_the_files_with_her(tmp_path: Path, set_budgets: SetBudgets) -> None:
    """Also one that goes on to list another file. [ER2] [GC17]"""
    set_budgets(inline_entry_bytes=0)
    url, kind = str(tmp_path / "table"), KINDS["partitioned"]
    mc.write(kind.rows(ADA, "Cem"), url, partition_by="person")
    mc.write(kind.rows("Dan"), url)
    until_done(mc.Table(url), kind.where)
    assert telling(url) == set() and len(mc.Table(url).to_arrow()) == 2
