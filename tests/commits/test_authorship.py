"""Who made a commit stays with it, whoever commits it. [OB15]"""

import functools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.commits.commit_loop import Committers, GroupCommit, create_table
from manifestcommit.commits.two_phase import commit_prepared
from manifestcommit.errors import CorruptMetadataError, UsageError
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Inputs
from manifestcommit.format.fields import NO_COLUMNS
from manifestcommit.format.snapshot import MAX_MESSAGE, Author, Commit
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.runtime import environment
from manifestcommit.store import open_store
from manifestcommit.store.local import MemoryStore

ROWS = pa.table({"day": ["2013-01-01"], "flight": [1545]})
HOSTILE = {"git %+=#": "'\"é &<b>", "empty": ""}


def last(root: Any) -> Commit:
    return mc.Table(root).snapshot().commits[-1]


def as_other(monkeypatch: pytest.MonkeyPatch, **parts: str) -> None:
    """From now on somebody else runs this process."""
    monkeypatch.setattr(environment, "_runner", lambda: Author(**parts))
    monkeypatch.setattr(environment, "_author", functools.cache(environment._author.__wrapped__))


def test_a_commit_says_who_made_it_and_what_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one that creates the table. [OB15]"""
    as_other(monkeypatch, user="ann", host="h 1", program="load.py", software="x 1")
    mc.write(ROWS, tmp_path / "t", message="first\nload", metadata=HOSTILE)
    for entry in mc.Table(tmp_path / "t").history():
        assert entry["message"] == "first\nload" and entry["metadata"] == HOSTILE
        assert entry["author"] == {"user": "ann", "host": "h 1", "program": "load.py", "software": "x 1"}
    described = mc.Table(tmp_path / "t").describe()["commits"][0]
    assert described["message"] == "first\nload" and described["author"]["user"] == "ann"


def test_another_process_that_commits_a_prepared_job_adds_nothing_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the job says nothing of itself. [OB15] [AB3]"""
    mc.write(ROWS, root)
    as_other(monkeypatch, user="ann")
    job = mc.begin(root, message="by ann", metadata={"run": "1"})
    job.write(ROWS)
    job.note(metadata={"rejected": "7"})
    prepared = job.prepare()
    monkeypatch.setenv("MANIFESTCOMMIT_AUTHOR", "none")
    silent = mc.begin(root)
    silent.write(ROWS)
    quiet = silent.prepare()
    monkeypatch.delenv("MANIFESTCOMMIT_AUTHOR")
    as_other(monkeypatch, user="bob", host="elsewhere")
    mc.commit(root, prepared)
    assert (last(root).message, last(root).metadata, last(root).author) == ("by ann", {"run": "1", "rejected": "7"}, Author(user="ann"))
    mc.commit(root, quiet)
    assert last(root).job == quiet
    assert (last(root).message, last(root).metadata, last(root).author) == (None, {}, None)


def test_a_writer_that_carries_an_intent_records_what_stands_in_it() -> None:
    """Each record of the version keeps its own. [OB15] [CM20]"""
    store = MemoryStore("authorship")
    create_table(TableContext(store), schema=NO_COLUMNS, partition_by=(), properties={})
    mine, other = (TableContext(store).noting(f"by {name}", {"by": name}) for name in ("ann", "bob"))
    mine.author, other.author = Author(user="ann"), Author(user="bob")
    waiting = Job(mine)
    waiting.advance("s", 0, 5)
    head = mine.open()
    group = GroupCommit(mine, waiting.id, Committers.GROUP, waiting.measure())
    assert group.publish(mine.signed(waiting.change(), head.snapshot.properties))
    carrier = GroupCommit(other, other.new_job(head), Committers.GROUP, waiting.measure())
    carrier.saw({waiting.id: 100})
    own = Job(other).change()
    (carried,) = carrier.carry(head.snapshot, own, Inputs()).commits
    assert (carried.job, carried.message, carried.metadata, carried.author) == (waiting.id, "by ann", {"by": "ann"}, Author(user="ann"))
    outcome = commit_prepared(other, waiting.id)
    assert outcome.committed and other.open().snapshot.commits[0].author == Author(user="ann")


def change_rows(table: mc.Table, name: str) -> object:
    """A change of rows or of their files, in this process."""
    if name == "update":
        return table.update({"flight": 1})
    if name == "delete":
        return table.delete("flight = 1545")
    if name == "merge":
        return table.merge(ROWS, on="flight")
    if name == "merge with clauses":
        return table.merge(ROWS, on="flight", when_matched=mc.Update(set={"flight": 2}))
    return table.compact()


@pytest.mark.parametrize("name", ["update", "delete", "merge", "merge with clauses", "compact"])
def test_a_change_of_rows_without_spark_says_what_for(tmp_path: Path, name: str) -> None:
    """[OB15] [RC8]"""
    table = mc.Table(tmp_path / "t")
    for _ in range(3):
        mc.write(ROWS, table.url)
    before = table.version
    change_rows(table.noting("why é", metadata=HOSTILE), name)
    made = [row for row in table.history() if row["version"] > before]
    assert made and all((row["message"], row["metadata"]) == ("why é", HOSTILE) for row in made)


def test_a_retry_from_another_host_is_the_same_work(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Neither note nor author is declared with the key. [OB15] [KY1]"""
    as_other(monkeypatch, user="ann", host="one")
    first = mc.write(ROWS, root, key="k", message="run 1", metadata={"run": "1"})
    as_other(monkeypatch, user="bob", host="two")
    again = mc.write(ROWS, root, key="k", message="run 2", metadata={"run": "2"})
    assert again.already_committed and again.version == first.version
    assert last(root).message == "run 1" and last(root).author == Author(user="ann", host="one")


def test_the_environment_and_the_table_withhold_parts_of_the_author(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """A prepared job that names one which the table withholds by then is committed without it. [OB15]"""
    as_other(monkeypatch, user="ann", host="one", program="p", software="s")
    mc.write(ROWS, root)
    job = mc.begin(root)
    job.write(ROWS)
    prepared = job.prepare()
    mc.Table(root).set_properties({"write.author": "program, software"})
    assert last(root).author == Author(program="p", software="s")
    mc.commit(root, prepared)
    assert last(root).author == Author(program="p", software="s")
    monkeypatch.setenv("MANIFESTCOMMIT_AUTHOR", "user,program")
    mc.write(ROWS, root)
    assert last(root).author == Author(program="p")
    hidden = mc.begin(root)
    hidden.write(ROWS)
    data = (root / object_names.prepared_name(hidden.prepare())).read_bytes()
    assert json.loads(codec.decompress(data, name="x"))["change"]["author"] == {"program": "p"}
    mc.Table(root).set_properties({"write.author": "none"})
    assert last(root).author is None
    monkeypatch.setenv("MANIFESTCOMMIT_AUTHOR", "user,hots")
    with pytest.raises(UsageError, match="MANIFESTCOMMIT_AUTHOR"):
        mc.begin(root)
    with pytest.raises(UsageError, match=r"write\.author"):
        mc.Table(root).set_properties({"write.author": "user,hots"})


def test_a_prepared_job_whose_message_is_too_long_is_damaged(root: Path) -> None:
    """Whoever commits it would carry it into the table. [OB15] [OB4]"""
    mc.write(ROWS, root)
    job = mc.begin(root, message="short")
    job.write(ROWS)
    id = job.prepare()
    file = root / object_names.prepared_name(id)
    whole = json.loads(codec.decompress(file.read_bytes(), name="x"))
    for wrong in (
        {"message": "a" * (MAX_MESSAGE + 1)},
        {"message": "a\0"},
        {"metadata": {"a": "b" * 2_000}},
        {"author": {"user": "u" * 999}},
        {"author": {"user": "\x1b"}},
    ):
        file.write_bytes(codec.compress(json.dumps({**whole, "change": {**whole["change"], **wrong}}).encode()))
        with pytest.raises(CorruptMetadataError, match=r"[Ee]xpected"):
            mc.commit(root, id)


def test_the_author_is_this_process_and_no_argument_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[OB15] [SE1]"""
    store = open_store(tmp_path / "t")
    monkeypatch.setattr("sys.argv", ["/srv/jobs/load.py", "--password=hunter2"])
    author = TableContext(store).env.author()
    assert author.software == f"manifestcommit {mc.__version__}" and author.host
    assert "hunter2" not in repr(author)
