"""Everything of the stores' clients that the library uses although it is private, in one place: a
release that moves one of these is mended here. [ST5] [ST14]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any


def send_once(session: Any) -> None:
    """Keep an aiohttp session from sending a request again after a broken connection: a create that
    succeeded would seem to be taken. aiohttp has no public switch."""
    session._retry_connection = False


def follow_no_redirects(session: Any) -> None:
    """Keep an aiohttp session from sending a request, with its body and its token, to another
    host, and from sending one twice."""
    if session._retry_connection:
        send_once(session)
        vars(session)["_request"] = partial(session._request, allow_redirects=False)


def azure_transport(service: Any) -> Any:
    """The HTTP transport below a client of Azure's blob service."""
    return service._pipeline._transport


def call_s3(fs: Any, method: str, **arguments: Any) -> Any:
    """A coroutine: one request of s3fs, by the name that S3's API has for it."""
    return fs._call_s3(method, **arguments)


def parse_s3_times(fs: Any, parse: Callable[[Any], datetime]) -> None:
    """Let a connected s3fs filesystem parse the times in its responses like this."""
    factory = fs.session.get_component("response_parser_factory")
    factory.set_parser_defaults(timestamp_parser=parse)


def s3_signer(fs: Any) -> Any:
    """What signs the requests of an s3fs filesystem."""
    return fs.s3._request_signer


def open_gcs_session(fs: Any) -> Any:
    """A coroutine: gcsfs has a session to send with."""
    return fs._set_session()


def gcs_params(fs: Any, query: Mapping[str, Any]) -> dict[str, Any]:
    """A request's query with what gcsfs adds to it, such as who pays."""
    return dict(fs._get_params(dict(query)))


def gcs_headers(fs: Any, headers: Mapping[str, str]) -> dict[str, str]:
    """A request's headers with what gcsfs adds to them: the token."""
    return dict(fs._get_headers(dict(headers)))


def stripped(fs: Any, path: str) -> str:
    """A path as an fsspec filesystem names it."""
    return str(fs._strip_protocol(path))


def async_create(kind: type[Any]) -> Any:
    """The coroutine behind `pipe_file` of an asynchronous fsspec filesystem."""
    return kind._pipe_file
