"""A real S3 server (Ceph RGW) for benchmarks, and what each client needs to reach it.

The developer's own gateway is used where one runs (`tests/servers/rgw.sh start`); else one is started, and ended with the benchmark.
`far_away` puts it behind a network: every request of every client takes so much longer to arrive.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import os
import subprocess
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.servers.servers import S3Server, UnavailableError, developers_rgw, start_rgw, stop_rgw

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["S3Server", "anyone_may_write", "delta_options", "far_away", "iceberg_options", "s3_server", "versions"]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A gateway that is there while the block runs."""
    running = developers_rgw()
    if running is not None:
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="manifestcommit-bench-rgw-") as folder:
        try:
            yield start_rgw(Path(folder), for_pid=os.getpid())
        except UnavailableError as error:
            raise SystemExit(f"this benchmark needs a real S3 server: {error}") from None
        finally:
            stop_rgw(Path(folder))


@contextmanager
def far_away(server: S3Server, delay_ms: int) -> Iterator[S3Server]:
    """The server, to which bytes of clients come `delay_ms` late, by a relay in a process of its own. 0: the server itself."""
    if not delay_ms:
        yield server
        return
    ours, theirs = mp.get_context("spawn").Pipe()
    parts = urlsplit(server.endpoint)
    arguments = (theirs, str(parts.hostname), parts.port, delay_ms / 1000)
    process = mp.get_context("spawn").Process(target=_relay, args=arguments, daemon=True)
    process.start()
    theirs.close()  # so that a relay that ends at once is no endless wait
    try:
        yield replace(server, endpoint=f"http://127.0.0.1:{ours.recv()}")
    finally:
        process.terminate()
        process.join()


def _relay(port_to: Connection, host: str, port: int | None, delay_s: float) -> None:
    async def late(reader: StreamReader, writer: StreamWriter, by: float) -> None:
        loop, waiting = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def pass_on() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    return writer.close()
                writer.write(data)
                await writer.drain()

        passing = asyncio.create_task(pass_on())
        try:
            while data := await reader.read(1 << 16):
                waiting.put_nowait((loop.time() + by, data))
        except OSError:
            pass  # the other side ended it: what has come is passed on
        waiting.put_nowait((loop.time() + by, b""))
        await asyncio.wait([passing])

    async def connected(reader: StreamReader, writer: StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, port)
        await asyncio.gather(late(reader, back, delay_s), late(there, writer, 0.0))

    async def serve() -> None:
        listening = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=512)
        port_to.send(listening.sockets[0].getsockname()[1])
        await listening.serve_forever()

    asyncio.run(serve())


def anyone_may_write(server: S3Server) -> str:
    """A new bucket into which requests without a signature may write: the floor is not the speed of a client's signing."""
    bucket = server.bucket()
    allowed = {"Effect": "Allow", "Principal": "*", "Action": ["s3:PutObject"], "Resource": f"arn:aws:s3:::{bucket}/*"}
    server.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
    return bucket


def delta_options(server: S3Server) -> dict[str, str]:
    """As deltalake takes them. Its commits are conditional creates, as ours are; no lock service is involved."""
    return {
        **{name: value for name, value in server.environment.items() if name != "AWS_DEFAULT_REGION"},
        "AWS_REGION": server.environment["AWS_DEFAULT_REGION"],
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }


def iceberg_options(server: S3Server) -> dict[str, str]:
    """As pyiceberg's FileIO takes them."""
    return {
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.key,
        "s3.secret-access-key": server.secret,
        "s3.region": server.environment["AWS_DEFAULT_REGION"],
    }


def versions(*packages: str) -> str:
    """The packages and the server with their versions, as results record them."""
    said = subprocess.run(["radosgw", "--version"], capture_output=True, text=True, check=False).stdout.split()
    found = ["ceph " + (said[2] if len(said) > 2 else "unknown")]
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            raise SystemExit(f"this benchmark compares with {package}, which is not installed; `make bench` installs it") from None
    return ", ".join(found)
