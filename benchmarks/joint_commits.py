"""What a commit of several tables costs: beside separate commits, with several writers, and after a coordinator that died.

- `latency`: one transaction over 2, 3 or 5 tables, beside as many writes one by one (`commit_all` in the results, which began with a call
  of that name). Each writes a file of one row.
- `throughput`: 1, 4 and 16 writers, threads of one process, over pairs of three tables that overlap, half of them in opposite order;
  what was acknowledged in the time counts. `failed` are calls that raised.
- `wait`: how long the first commit to a table takes whose newest version a dead coordinator has left undecided, beside a commit to one
  that nobody holds.

On a local disk, where a request takes next to nothing: the figures are those of the protocol's steps and of the files' syncs. Each
round ends with a check that every table holds the rows of every acknowledged transaction, and that a joint read shows as many in each.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, work_folder
from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.log.table_context import TableContext
from manifestcommit.testing import FaultStore

ROW = pa.table({"id": [1]})


class Died(BaseException):
    """The coordinator ended before its decision."""


def main() -> int:
    """All three, on a local disk."""
    options = parser(__doc__)
    options.add_argument("--writers", type=int, nargs="+", help="numbers of writers (default: 1 4 16, quick: 1 4)")
    options.add_argument("--seconds", type=float, help="how long the writers of one round go on (default: 10, quick: 1)")
    chosen = options.parse_args()
    rounds = int(chosen.rounds or (1 if chosen.quick else 3))
    seconds = chosen.seconds or (1.0 if chosen.quick else 10.0)
    with work_folder(chosen) as folder:
        for count in (2, 3, 5):
            latency(str(folder), count, rounds=rounds, times=5 if chosen.quick else 50)
        for writers in chosen.writers or ([1, 4] if chosen.quick else [1, 4, 16]):
            throughput(str(folder), writers, seconds, rounds=rounds)
        wait(str(folder), rounds=rounds)
    return 0


def tables(folder: str, count: int) -> list[str]:
    """New tables of one column."""
    made = [f"{folder}/{secrets.token_hex(4)}-{number}" for number in range(count)]
    for path in made:
        mc.create_table(path, ROW.schema)
    return made


def together(paths: Sequence[str]) -> None:
    """One row into each, by one commit."""
    with mc.transaction(list(paths)) as tx:
        for name in tx:
            tx[name].write(ROW)


def check(paths: Sequence[str], rows: int) -> None:
    """SystemExit where a joint read shows other rows."""
    found = [table.dataset().count_rows() for table in mc.read_together(list(paths))]
    if found != [rows] * len(paths):
        raise SystemExit(f"the tables hold {found} rows, not {rows} each")


def separately(paths: Sequence[str]) -> None:
    """One row into each, each committed on its own."""
    for path in paths:
        mc.write(ROW, path)


def latency(folder: str, count: int, *, rounds: int, times: int) -> None:
    """One writer, nobody in the way."""

    def run(act: Callable[[Sequence[str]], None], number: int) -> Figures:
        paths = tables(folder, count)
        start = time.perf_counter()
        for _ in range(times):
            act(paths)
        spent = time.perf_counter() - start
        check(paths, times)
        return {"ms": spent * 1000 / times}

    sides = [Contestant(name="one transaction", run=partial(run, together)), Contestant(name="commit_all", run=partial(run, separately))]
    interleave(sides, rounds=rounds)
    report("joint_commits", {"case": "latency", "tables": count, "times": times}, sides, figures=["ms"])


def throughput(folder: str, writers: int, seconds: float, *, rounds: int) -> None:
    """Pairs of three tables, in either order."""

    def run(number: int) -> Figures:
        paths = tables(folder, 3)
        pairs = [[paths[at % 3], paths[(at + 1) % 3]][:: 1 if at % 2 else -1] for at in range(writers)]
        done, failed, lock = dict.fromkeys(paths, 0), 0, threading.Lock()
        end = time.perf_counter() + seconds
        in_time = 0

        def write(pair: Sequence[str]) -> None:
            nonlocal failed, in_time
            while time.perf_counter() < end:
                try:
                    together(pair)
                except mc.errors.ManifestCommitError as error:
                    print(f"    {error}", file=sys.stderr, flush=True)
                    with lock:
                        failed += 1
                    continue
                with lock:
                    in_time += time.perf_counter() < end
                    for path in pair:
                        done[path] += 1

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, pairs))
        for table in mc.read_together(paths):
            expected = next(count for path, count in done.items() if mc.Table(path).url == table.url)
            if table.dataset().count_rows() != expected:
                raise SystemExit(f"{table} does not hold the {expected} rows that were acknowledged")
        return {"commits_per_s": in_time / seconds, "failed": failed}

    side = Contestant(name="transactions over two tables", run=run)
    interleave([side], rounds=rounds)
    report("joint_commits", {"case": "throughput", "writers": writers, "seconds": seconds}, [side], figures=["commits_per_s", "failed"])


def wait(folder: str, *, rounds: int) -> None:
    """The table that is written is a member, not the one that decides."""

    def leave_undecided(paths: Sequence[str]) -> str:
        tx = mc.transaction(list(paths))
        for name in tx:
            tx[name].write(ROW)
        creates = 0

        def on_call(call: object) -> None:
            nonlocal creates
            creates += getattr(call, "kind", "") == "put_if_absent"
            if creates > 1:
                raise Died

        parts = []
        for name in tx:
            part = tx[name].take_part()
            session = TableContext(FaultStore(part.ctx.store, on_call=on_call), part.ctx.env)
            parts.append(type(part)(ctx=session, head=part.head, change=part.change))
        try:
            commit_jointly(parts)
        except Died:
            return next(path for path in paths if "member_is_undecided" in {each.kind for each in mc.Table(path).verify().findings})
        raise SystemExit("the coordinator did not die")

    def run(died: bool, number: int) -> Figures:
        paths = tables(folder, 2)
        written = leave_undecided(paths) if died else paths[0]
        start = time.perf_counter()
        mc.write(ROW, written)
        spent = time.perf_counter() - start
        if [table.dataset().count_rows() for table in mc.read_together([written])] != [1]:
            raise SystemExit("the transaction that nobody decided is in the table")
        return {"seconds": spent}

    sides = [
        Contestant(name="after a dead coordinator", run=partial(run, True)),
        Contestant(name="a free table", run=partial(run, False)),
    ]
    interleave(sides, rounds=rounds)
    report("joint_commits", {"case": "wait"}, sides, figures=["seconds"])


if __name__ == "__main__":
    sys.exit(main())
