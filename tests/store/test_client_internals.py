"""The private parts of the stores' clients that the library uses are where it looks for them, and do what it relies on. [ST5] [ST14]

`make test-newest` runs these with the newest releases. No test here talks to a store: where a request is needed, a server of a few
lines answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib.metadata
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from manifestcommit.store.backends import client_internals


@contextlib.contextmanager
def part_of(library: str, part: str) -> Iterator[None]:
    """Within, a part that is not there any more, or does something else, is one clear failure."""
    try:
        yield
    except (AttributeError, TypeError, KeyError, AssertionError) as error:
        version = importlib.metadata.version(library)
        pytest.fail(f"{library} {version} has moved {part}; mend manifestcommit/store/backends/client_internals.py: {error!r}")


@contextlib.asynccontextmanager
async def server(*answers: str) -> AsyncIterator[tuple[str, list[str]]]:
    """(its URL, the first line of every request): a server that gives these answers in turn, the last one again and again."""
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            seen.append(head.split(b"\r\n")[0].decode())
            answer = answers[min(len(seen), len(answers)) - 1]
            if not answer:
                break  # without a response
            writer.write(answer.encode())
            await writer.drain()
        writer.close()

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        writer.close()

    running = await asyncio.start_server(quietly, "127.0.0.1", 0)
    host, port = running.sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}", seen
    finally:
        running.close()


OK = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
REDIRECT = "HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
BROKEN = ""


async def send_once() -> None:
    """Over a kept connection that breaks, a PUT is sent once; without `send_once`, twice."""
    import aiohttp

    for once, requests in ((False, 3), (True, 2)):
        async with server(OK, BROKEN, OK) as (url, seen), aiohttp.ClientSession() as session:
            with part_of("aiohttp", "ClientSession._retry_connection"):
                if once:
                    client_internals.send_once(session)
                await (await session.put(url)).release()
                with contextlib.suppress(aiohttp.ServerDisconnectedError):
                    await (await session.put(url)).release()
                assert len(seen) == requests, f"{len(seen)} requests, not {requests}"


async def follow_no_redirects() -> None:
    import aiohttp

    async with server(REDIRECT, OK) as (url, seen), aiohttp.ClientSession() as session:
        with part_of("aiohttp", "ClientSession._request or ClientSession._retry_connection"):
            client_internals.follow_no_redirects(session)
            assert not session._retry_connection
            client_internals.follow_no_redirects(session)  # again: it changes nothing
            async with session.put(url) as response:
                assert response.status == 307 and len(seen) == 1, seen


async def azure_transport() -> None:
    from azure.storage.blob.aio import BlobServiceClient

    async with BlobServiceClient("https://account.blob.core.windows.net") as service:
        with part_of("azure-storage-blob", "BlobServiceClient._pipeline._transport"):
            transport = client_internals.azure_transport(service)
            await transport.open()
            assert transport.session._retry_connection is True
            client_internals.send_once(transport.session)


async def call_s3() -> None:
    import s3fs

    async with server(OK) as (url, seen):
        region, style = {"region_name": "us-east-1"}, {"s3": {"addressing_style": "path"}}
        options = {"key": "k", "secret": "s", "client_kwargs": region, "config_kwargs": style}
        fs = s3fs.S3FileSystem(asynchronous=True, skip_instance_cache=True, endpoint_url=url, **options)
        with part_of("s3fs", "S3FileSystem._call_s3"):
            found = await client_internals.call_s3(fs, "head_object", Bucket="bucket", Key="x")
            assert found["ResponseMetadata"]["HTTPStatusCode"] == 200 and seen == ["HEAD /bucket/x HTTP/1.1"], seen
        await fs.s3.close()


async def parse_s3_times() -> None:
    import s3fs

    listed = "<ListBucketResult><Contents><Key>x</Key><LastModified>some time</LastModified></Contents></ListBucketResult>"
    async with server(f"HTTP/1.1 200 OK\r\nContent-Length: {len(listed)}\r\n\r\n{listed}") as (url, _):
        region, style = {"region_name": "us-east-1"}, {"s3": {"addressing_style": "path"}}
        options = {"key": "k", "secret": "s", "client_kwargs": region, "config_kwargs": style}
        fs = s3fs.S3FileSystem(asynchronous=True, skip_instance_cache=True, endpoint_url=url, **options)
        await fs.set_session()
        with part_of("aiobotocore", "the session's response_parser_factory"):
            client_internals.parse_s3_times(fs, lambda text: dt.datetime(2026, 1, 1 + len(text)))
            found = await client_internals.call_s3(fs, "list_objects_v2", Bucket="bucket")
            assert found["Contents"][0]["LastModified"] == dt.datetime(2026, 1, 10)
        await fs.s3.close()


async def s3_signer() -> None:
    import s3fs

    fs = s3fs.S3FileSystem(asynchronous=True, skip_instance_cache=True, key="k", secret="s")
    await fs.set_session()
    with part_of("aiobotocore", "the client's _request_signer"):
        signed = await client_internals.s3_signer(fs).get_auth_instance("s3", "us-east-1", "s3v4")
        assert callable(signed.add_auth)
    await fs.s3.close()


def gcs(**options: Any) -> Any:
    import gcsfs

    return gcsfs.GCSFileSystem(token="anon", asynchronous=True, skip_instance_cache=True, **options)


async def open_gcs_session() -> None:
    fs = gcs()
    with part_of("gcsfs", "GCSFileSystem._set_session"):
        await client_internals.open_gcs_session(fs)
        assert fs.session is not None and not fs.session.closed
    await fs.session.close()


async def gcs_params() -> None:
    with part_of("gcsfs", "GCSFileSystem._get_params"):
        found = client_internals.gcs_params(gcs(requester_pays="payer"), {"ifGenerationMatch": "0"})
        assert found["ifGenerationMatch"] == "0" and found["userProject"] == "payer", found


async def gcs_headers() -> None:
    class Bearer:
        def apply(self, headers: dict[str, str]) -> None:
            headers["Authorization"] = "Bearer t"

    fs = gcs()
    fs.credentials = Bearer()
    with part_of("gcsfs", "GCSFileSystem._get_headers"):
        found = client_internals.gcs_headers(fs, {"Content-Type": "text/plain"})
        assert found["Content-Type"] == "text/plain" and found["Authorization"] == "Bearer t", found


async def stripped() -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    with part_of("fsspec", "AbstractFileSystem._strip_protocol"):
        assert client_internals.stripped(MemoryFileSystem(), "memory://a/b/") == "/a/b"


async def async_create() -> None:
    import gcsfs
    from fsspec.asyn import AsyncFileSystem

    with part_of("fsspec", "AsyncFileSystem._pipe_file"):
        assert inspect.iscoroutinefunction(client_internals.async_create(AsyncFileSystem))
        assert "mode" in inspect.signature(client_internals.async_create(gcsfs.GCSFileSystem)).parameters


CHECKS: dict[str, Callable[[], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        send_once,
        follow_no_redirects,
        azure_transport,
        call_s3,
        parse_s3_times,
        s3_signer,
        open_gcs_session,
        gcs_params,
        gcs_headers,
        stripped,
        async_create,
    )
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_private_part_is_where_it_was(name: str) -> None:
    asyncio.run(CHECKS[name]())


def test_every_private_part_is_tested() -> None:
    parts = {name for name, each in vars(client_internals).items() if inspect.isfunction(each)}
    assert parts == CHECKS.keys()


def test_a_part_that_has_moved_is_one_clear_failure() -> None:
    told = r"fsspec [\d.]+ has moved x; mend .*client_internals\.py: AttributeError"
    with pytest.raises(pytest.fail.Exception, match=told), part_of("fsspec", "x"):
        object().gone  # type: ignore[attr-defined]  # noqa: B018
