"""Requests and bytes that each operation costs on S3, by kind, beside deltalake and pyiceberg; the CPU of one small request; and appends.

Requests are the same in every run; bytes differ by a percent or so, since names are drawn at random and metadata is compressed.
Every client reaches the same server through the same counting proxy. An operation begins in a new process, so nothing is known or
cached that a new job on another machine would not have. Columns: `put`, `get`, `head`, `list`, `post` (multipart uploads, deletes of
many), `delete`; `requests` is their sum, and `of_data` says how many of them named data files; `up_bytes` and `down_bytes` are the bodies.

- `create a table`: an empty one, partitioned. Ours has the store race some 70 creates first, once in the life of a table.
- `open`: from nothing to the newest version, of a table of 100 or 150 commits of a file each, or of N files in one commit.
- `commit 1 file`: from nothing, append a row to the table of 150 commits (`cold`); then the same by the same object (`warm`). We have no
  object that stays open between commits: our second commit opens the table again.
- `commit N files`: from nothing, rows of N partitions, each of which becomes a file, in one commit to the created table.
- `plan`: from nothing to the list of files of the table of N files: all, or the 1 % that a filter on a partition column keeps.

- `one small PUT`, `GET`, `LIST`: `cpu_ms` of our process for each of 500 requests one after another: a create of 2 kB, that object,
  a list of two names, as a commit's. The floor is `http.client` on a kept connection, whose requests were signed before and whose
  answers nobody reads.

- `append one row`: ten appends one after another to a table of twenty commits, in a process that has done so before, beside Lance and
  deltalake: our `cpu_ms` of the process and `ms` of each. Behind a network of `delay_ms` to each request, `delays` is how many of these
  one append takes, everything in it. `mc.write` begins anew with each call but for what the process knows of the table; `knows nothing`
  is the same by a process that knows no table, and each time it is: 5 delays by protocol; 4 with what it knows. The floor is what
  every append needs at least, two requests one after another: a put and a create, of as many bytes, by `http.client`.

What these figures do not say:

- pyiceberg's commits are transactions in a catalog, here SQLite on a local disk. What a catalog costs is not counted.
- No table here was maintained. deltalake writes a checkpoint with each 100th commit by itself: at 100 commits it has just done so, at
  150 it is half way to the next. pyiceberg's list of manifests grows with each commit until somebody rewrites it.
- Deleting what is no longer needed: ours does not exist yet.
"""

from __future__ import annotations

import http.client
import multiprocessing as mp
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from tests.kit.proxy import FaultProxy

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, work_folder
from benchmarks.s3 import S3Server, anyone_may_write, delta_options, far_away, iceberg_options, s3_server, versions
from manifestcommit.store import open_store

GROUPS = 100  # partitions of the upper level: a filter on one of them keeps 1 %
GROUP = 7
METADATA = ("/_manifest/", "/_delta_log/", "/metadata/")
FIGURES = ["requests", "put", "get", "head", "list", "post", "delete", "of_data", "up_bytes", "down_bytes"]
REQUESTS = 500
APPENDS = 10
ONE_ROW = pa.table({"id": [1], "name": ["row 1"]})
LISTED = f"listed/{7:020}.json.zst"
SCHEMA = pa.schema([("grp", pa.int32()), ("part", pa.int32()), ("name", pa.string())])


def main() -> int:
    """Every operation by every system, once: counts need no rounds. Then small requests by each client, in turns."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, help="files of the large table, a multiple of 100 (default: 10000, quick: 200)")
    options.add_argument("--requests", action="store_true", help="small requests only")
    options.add_argument("--appends", action="store_true", help="appends of one row only")
    chosen = options.parse_args()
    files = chosen.files or (200 if chosen.quick else 10_000)
    used = versions("deltalake", "pyiceberg", "pylance", "botocore")
    with s3_server() as server:
        for kind in () if chosen.appends else ("PUT", "GET", "LIST"):
            requests = SmallRequests(server, kind)
            contestants = [
                Contestant(name="manifestcommit", run=requests.timed(requests.ours)),
                Contestant(name="http.client, signed before (floor)", before=requests.sign, run=requests.timed(requests.floor)),
                Contestant(name="botocore", run=requests.timed(requests.botocores)),
            ]
            interleave(contestants, rounds=rounds_of(chosen))
            report("costs", {"operation": f"one small {kind}", "versions": used}, contestants, figures=["cpu_ms", "ms"])
        for delay_ms in () if chosen.requests else (0, 20, 50):
            with far_away(server, delay_ms) as through:
                appends = Appends(through, delay_ms)
                interleave(appends.contestants, rounds=rounds_of(chosen))
            figures = ["cpu_ms", "ms", *(["delays"] if delay_ms else [])]
            report("costs", {"operation": "append one row", "delay_ms": delay_ms, "versions": used}, appends.contestants, figures=figures)
        if chosen.requests or chosen.appends:
            return 0
    with work_folder(chosen) as folder, s3_server() as server, FaultProxy(server.endpoint) as proxy:
        through = S3Server(endpoint=proxy.url, key=server.key, secret=server.secret)
        found = {name: costs_of(name, proxy, through, server.bucket(), folder, files) for name in SYSTEMS}
    for operation in next(iter(found.values())):
        contestants = [Contestant(name=name, run=lambda _: None, rounds=[dict(costs[operation])]) for name, costs in found.items()]
        report("costs", {"operation": operation, "versions": used}, contestants, figures=FIGURES)
    return 0


class SmallRequests:
    """One kind of small request, one after another, as each client sends it."""

    def __init__(self, server: S3Server, kind: str) -> None:
        from botocore.session import Session

        self._server, self._kind, self._bucket = server, kind, server.bucket()
        self._store = open_store(f"s3://{self._bucket}/t", server.storage_options)
        self._client = Session().create_client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=server.key,
            aws_secret_access_key=server.secret,
            region_name="us-east-1",
        )
        self._body = os.urandom(2000)
        self._signed: list[tuple[str, str, bytes, dict[str, str]]] = []
        for number in (7, 8):
            self._store.put(f"listed/{number:020}.json.zst", self._body)
        self._connection = http.client.HTTPConnection(server.endpoint.partition("://")[2])

    def timed(self, send: Callable[[str], None]) -> Callable[[int], Figures]:
        def run(_: int) -> Figures:
            began_cpu, began = time.process_time(), time.perf_counter()
            for number in range(REQUESTS):
                send(f"{send.__name__}-{secrets.token_hex(4)}-{number}")
            return {
                "cpu_ms": (time.process_time() - began_cpu) * 1000 / REQUESTS,
                "ms": (time.perf_counter() - began) * 1000 / REQUESTS,
            }

        return run

    def ours(self, name: str) -> None:
        if self._kind == "PUT":
            assert self._store.put_if_absent(name, self._body)
        elif self._kind == "GET":
            assert len(self._store.get(LISTED)) == len(self._body)
        else:
            assert len(list(self._store.list("listed/"))) == 2

    def botocores(self, name: str) -> None:
        where = {"Bucket": self._bucket}
        if self._kind == "PUT":
            self._client.put_object(**where, Key=f"t/{name}", Body=self._body, IfNoneMatch="*")
        elif self._kind == "GET":
            assert len(self._client.get_object(**where, Key=f"t/{LISTED}")["Body"].read()) == len(self._body)
        else:
            assert len(self._client.list_objects_v2(**where, Prefix="t/listed/")["Contents"]) == 2

    def sign(self, _: int) -> None:
        """The requests of the next round."""
        self._signed = [self._one_signed(f"signed-{secrets.token_hex(4)}-{number}") for number in range(REQUESTS)]

    def floor(self, _: str) -> None:
        method, target, body, headers = self._signed.pop()
        self._connection.request(method, target, body or None, headers)
        response = self._connection.getresponse()
        assert response.read() is not None and response.status == 200, response.status

    def _one_signed(self, name: str) -> tuple[str, str, bytes, dict[str, str]]:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        target = {
            "PUT": f"/{self._bucket}/t/{name}",
            "GET": f"/{self._bucket}/t/{LISTED}",
            "LIST": f"/{self._bucket}?encoding-type=url&list-type=2&prefix=t%2Flisted%2F",
        }[self._kind]
        method, body = ("PUT", self._body) if self._kind == "PUT" else ("GET", b"")
        headers = {"If-None-Match": "*"} if self._kind == "PUT" else {}
        request = AWSRequest(method, f"{self._server.endpoint}{target}", headers=headers, data=body)
        S3SigV4Auth(Credentials(self._server.key, self._server.secret), "s3", "us-east-1").add_auth(request)
        return method, target, body, dict(request.headers.items())


class Appends:
    """Appends of one row to tables of each client, which are kept."""

    def __init__(self, server: S3Server, delay_ms: int) -> None:
        self._server, self._delay_ms, self._bucket = server, delay_ms, server.bucket()
        self._delta, self._connection = delta_options(server), http.client.HTTPConnection(server.endpoint.partition("://")[2])
        self._open_bucket = anyone_may_write(server)
        kinds = {
            "manifestcommit": self.ours,
            "manifestcommit, knows nothing": self.ours_anew,
            "lance": self.lances,
            "deltalake": self.deltas,
            "two requests (floor)": self.floor,
        }
        for append in kinds.values():
            for _ in range(20):
                append()
        self.contestants = [Contestant(name=name, run=self._timed(append)) for name, append in kinds.items()]

    def _timed(self, append: Callable[[], object]) -> Callable[[int], Figures]:
        def run(_: int) -> Figures:
            began_cpu, began = time.process_time(), time.perf_counter()
            for _ in range(APPENDS):
                append()
            cpu_ms, ms = ((end - start) * 1000 / APPENDS for end, start in ((time.process_time(), began_cpu), (time.perf_counter(), began)))
            return {"cpu_ms": cpu_ms, "ms": ms, **({"delays": ms / self._delay_ms} if self._delay_ms else {})}

        return run

    def ours(self) -> None:
        assert mc.write(ONE_ROW, f"s3://{self._bucket}/ours", storage_options=self._server.storage_options).committed

    def ours_anew(self) -> None:
        url, options = f"s3://{self._bucket}/anew", self._server.storage_options
        heads = open_store(url, options).heads
        assert heads is not None, "what is forgotten"
        heads.clear()
        assert mc.write(ONE_ROW, url, storage_options=options).committed

    def lances(self) -> None:
        import lance

        lance.write_dataset(ONE_ROW, f"s3://{self._bucket}/lance", mode="append", storage_options=self._delta)

    def deltas(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(f"s3://{self._bucket}/delta", ONE_ROW, mode="append", storage_options=self._delta)

    def floor(self) -> None:
        for size, headers in ((600, {}), (2000, {"If-None-Match": "*"})):
            self._connection.request("PUT", f"/{self._open_bucket}/{secrets.token_hex(8)}", os.urandom(size), headers)
            response = self._connection.getresponse()
            assert response.read() is not None and response.status == 200, response.status


def costs_of(name: str, proxy: FaultProxy, server: S3Server, bucket: str, folder: Path, files: int) -> dict[str, Figures]:
    """Operation -> what it cost this system."""
    costs: dict[str, Figures] = {}

    def counted(operation: str, run: Step, step: str, *arguments: int) -> int:
        print(f"    {name}: {operation}", file=sys.stderr, flush=True)
        proxy.reset()
        result = run(step, *arguments)
        costs[operation] = figures(proxy)
        return result

    def begin(table: str) -> Any:
        return new_process(name, server, bucket, table, folder)

    with begin("small") as run:
        run("create")
        run("append", 100)
    with begin("small") as run:
        counted("open, 100 commits", run, "open")
    with begin("small") as run:
        run("append", 50)
    with begin("small") as run:
        counted("open, 150 commits", run, "open")
    with begin("small") as run:
        counted("commit 1 file, cold", run, "append", 1)
        counted("commit 1 file, warm", run, "append", 1)
    with begin("large") as run:
        counted("create a table", run, "create")
    with begin("large") as run:
        counted(f"commit {files:,} files", run, "write", files)
    with begin("large") as run:
        counted(f"open, {files:,} files", run, "open")
    with begin("small") as run:
        check(name, run("plan", 0), 152)
    with begin("large") as run:
        check(name, counted(f"plan, all of {files:,} files", run, "plan", 0), files)
    with begin("large") as run:
        check(name, counted(f"plan, 1 % of {files:,} files", run, "plan", 1), files // GROUPS)
    return costs


def check(name: str, found: int, expected: int) -> None:
    """Ends the benchmark where a table is not what it should be."""
    if found != expected:
        raise SystemExit(f"{name} lists {found:,} files instead of {expected:,}: nothing to compare")


def figures(proxy: FaultProxy) -> Figures:
    """What was counted since the last reset."""
    counts = dict.fromkeys(FIGURES, 0)
    for request in proxy.requests:
        has_key = "/" in request.path.strip("/")
        kind = "list" if request.method == "GET" and not has_key else request.method.lower()
        counts[kind] += 1
        counts["requests"] += 1
        counts["of_data"] += has_key and not any(part in request.path for part in METADATA)
        counts["up_bytes"] += request.body_size
        counts["down_bytes"] += request.answer_bytes
    return counts


# --- in the processes of the systems --------------------------------------------------------------------------------------


class System(Protocol):
    """One table of one system, as one process sees it. Every step returns a number, of files or of versions."""

    def __init__(self, server: S3Server, bucket: str, table: str, folder: Path) -> None: ...

    def create(self) -> int:
        """Make the table, empty, partitioned by grp and part."""
        ...

    def open(self) -> int:
        """Know the newest version."""
        ...

    def append(self, commits: int) -> int:
        """So many commits of one row and one file each."""
        ...

    def write(self, files: int) -> int:
        """One commit of so many files."""
        ...

    def plan(self, filtered: int) -> int:
        """The number of the table's files, or of those that may hold rows of one group."""
        ...


class Manifestcommit:
    """Ours, by its public calls."""

    def __init__(self, server: S3Server, bucket: str, table: str, folder: Path) -> None:
        self._url, self._options = f"s3://{bucket}/{table}", server.storage_options

    def create(self) -> int:
        mc.create_table(self._url, SCHEMA, partition_by=["grp", "part"], storage_options=self._options)
        return 0

    def open(self) -> int:
        return mc.Table(self._url, self._options).snapshot().version

    def append(self, commits: int) -> int:
        for _ in range(commits):
            mc.write(rows(1), self._url, storage_options=self._options)
        return commits

    def write(self, files: int) -> int:
        mc.write(rows(files), self._url, storage_options=self._options)
        return files

    def plan(self, filtered: int) -> int:
        condition = pc.field("grp") == GROUP if filtered else None
        return int(mc.Table(self._url, self._options).files(filter=condition).num_rows)


class Deltalake:
    """delta-rs, whose object of the table is kept between commits."""

    def __init__(self, server: S3Server, bucket: str, table: str, folder: Path) -> None:
        self._url, self._options = f"s3://{bucket}/{table}", delta_options(server)

    @cached_property
    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._url, storage_options=self._options)

    def create(self) -> int:
        from deltalake import DeltaTable

        DeltaTable.create(self._url, SCHEMA, partition_by=["grp", "part"], storage_options=self._options)
        return 0

    def open(self) -> int:
        return int(self._table.version())

    def append(self, commits: int) -> int:
        for _ in range(commits):
            self._write(rows(1))
        return commits

    def write(self, files: int) -> int:
        self._write(rows(files))
        return files

    def plan(self, filtered: int) -> int:
        return len(self._table.file_uris(partition_filters=[("grp", "=", str(GROUP))] if filtered else None))

    def _write(self, data: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._table, data, mode="append")


class Pyiceberg:
    """pyiceberg with a catalog in SQLite and its default way to S3, which is pyarrow's; its object of the table is kept."""

    def __init__(self, server: S3Server, bucket: str, table: str, folder: Path) -> None:
        self._server, self._bucket, self._name, self._folder = server, bucket, ("bench", table), folder
        # Otherwise AWS' client sends checksums behind the body, which this server (Ceph 16) refuses with status 411.
        os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"

    @cached_property
    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        place = {"uri": f"sqlite:///{self._folder}/iceberg.db", "warehouse": f"s3://{self._bucket}"}
        return SqlCatalog("bench", **place, **iceberg_options(self._server))

    @cached_property
    def _table(self) -> Any:
        return self._catalog.load_table(self._name)

    def create(self) -> int:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import IntegerType, NestedField, StringType

        fields = [NestedField(1, "grp", IntegerType()), NestedField(2, "part", IntegerType()), NestedField(3, "name", StringType())]
        by = [PartitionField(number, 999 + number, IdentityTransform(), name) for number, name in ((1, "grp"), (2, "part"))]
        self._catalog.create_namespace_if_not_exists("bench")
        self._catalog.create_table(self._name, Schema(*fields), partition_spec=PartitionSpec(*by))
        return 0

    def open(self) -> int:
        return len(self._table.history())

    def append(self, commits: int) -> int:
        for _ in range(commits):
            self._table.append(rows(1))
        return commits

    def write(self, files: int) -> int:
        self._table.append(rows(files))
        return files

    def plan(self, filtered: int) -> int:
        scan = self._table.scan(row_filter=f"grp = {GROUP}") if filtered else self._table.scan()
        return sum(1 for _ in scan.plan_files())


SYSTEMS: dict[str, type[System]] = {"manifestcommit": Manifestcommit, "deltalake": Deltalake, "pyiceberg": Pyiceberg}


def rows(count: int) -> pa.Table:
    """Each row is a partition of its own."""
    return pa.table({"grp": [n % GROUPS for n in range(count)], "part": list(range(count)), "name": ["x"] * count}).cast(SCHEMA)


Step = Callable[..., int]
_system: System


@contextmanager
def new_process(name: str, server: S3Server, bucket: str, table: str, folder: Path) -> Iterator[Step]:
    """Steps of one system in a process that knows nothing yet."""
    with ProcessPoolExecutor(1, mp.get_context("spawn"), _begin, (name, server, bucket, table, folder)) as process:

        def step(what: str, *arguments: int) -> int:
            return process.submit(_step, what, arguments).result()

        yield step


def _begin(name: str, server: S3Server, bucket: str, table: str, folder: Path) -> None:
    global _system
    _system = SYSTEMS[name](server, bucket, table, folder)


def _step(what: str, arguments: Sequence[int]) -> int:
    result: int = getattr(_system, what)(*arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
