"""A real S3 server (Ceph RGW) for benchmarks, and what each client needs to reach it.

The developer's own gateway is used where one runs (`tests/servers/rgw.sh start`); else one is started, and ended with the benchmark.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.servers.servers import S3Server, UnavailableError, developers_rgw, start_rgw, stop_rgw

__all__ = ["S3Server", "delta_options", "iceberg_options", "s3_server", "versions"]


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
