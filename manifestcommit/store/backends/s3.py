"""S3 and compatible stores: one conditional single-part PUT per create, no cache, no existence
checks. [ST10] [ST11] [ST13]

s3fs finds credentials and endpoints as its users expect, and keeps the connections. The requests
are made here, by name, because its file-like calls check before they act, split names at `?`, and
cache listings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from socket import gaierror
from typing import Any
from urllib.parse import urlsplit

from aiobotocore.httpsession import AIOHTTPSession
from botocore.utils import parse_timestamp

from ...errors import StoreDeniedError, StoreError, UnsafeStoreError, UsageError
from ..base import ObjectInfo, Unfinished
from ..options import StorageOptions, public_endpoint
from .arrow_filesystem import TAIL, span, whole_size
from .backend import (
    CONNECT_S,
    NOT_IN_XML,
    READ_S,
    SENDING_S,
    Backend,
    NotOfferedError,
    Upload,
    wait,
)
from .client_internals import call_s3, follow_no_redirects, parse_s3_times
from .retry import TransientError
from .s3_gets import SENT, Gets, clone_request

# The HTTP session below botocore, without automatic repeats and redirects.


class OnceSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore ships no types
    """Sends every request once, to the endpoint and nowhere else."""

    def __init__(self, *more: Any, **settings: Any) -> None:
        super().__init__(*more, **settings)
        self._settings = settings

    async def send(self, request: Any) -> Any:
        if (sent := SENT.get()) is not None:
            sent.append((request, self._settings))
        return await super().send(request)

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        follow_no_redirects(session)
        return session


# a range from this length on, of a data file: not an object of the table's state, which may be
# missing and has only a size limit
DATA_BYTES = 64 * 1024
MAX_PARTS = 10_000
_CONFIG = {
    "connect_timeout": CONNECT_S,
    "read_timeout": READ_S,
    "max_pool_connections": 64,
    # `rclone serve s3` returns the whole object's checksum with a part of it
    "response_checksum_validation": "when_required",
}
_REGIONS = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "301",
    }
)


def _parse_time(text: Any) -> datetime:
    """The same as botocore's own parser, which takes most of the time of a listing: it tries every
    form of a date on each object. Lists have one form."""
    if isinstance(text, str) and text.endswith("Z"):
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(text)
    parsed: datetime = parse_timestamp(text)
    return parsed


class S3Backend(Backend):
    """Requests to one bucket, each sent once. [ST14]"""

    name = "s3://"
    extra = "s3"
    takes = (
        "s3fs' options: key, secret, token, endpoint_url, profile, anon, client_kwargs, "
        "config_kwargs, s3_additional_kwargs and so on"
    )
    credentials = (
        "Give key, secret and token in storage_options, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY in the environment, or a profile; for a public bucket anon=True."
    )
    busy_codes = frozenset(
        {
            "InternalError",
            "RequestTimeout",
            "ServiceUnavailable",
            "SlowDown",
            "ThrottlingException",
            "Throttling",
        }
    )
    bad_credentials = frozenset(
        {
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidToken",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
        }
    )
    pages_are_ordered = True
    removed_at_once = 1000

    def __init__(self, bucket: str, options: StorageOptions) -> None:
        super().__init__(options, "")
        if bucket.startswith("arn:"):
            raise UsageError(
                f"s3://{bucket}: name the bucket, or the alias of the access point, instead "
                "of an ARN"
            )
        if bucket.endswith("--x-s3"):
            raise UnsafeStoreError(
                f"s3://{bucket} is a directory bucket, whose lists have no order; commits "
                "rely on it. Use another bucket."
            )
        self._bucket = bucket

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}"

    @property
    def identity(self) -> str:
        endpoint = self._endpoint()
        return self.url + (f" at {endpoint}" if endpoint else "")

    def connect(self) -> Any:
        from s3fs import S3FileSystem  # late: an extra

        # At DEBUG it logs what it signs, with the session's token. A level of its own keeps that
        # from a root logger at DEBUG; whoever sets the level of "botocore" has asked for it.
        log = logging.getLogger("botocore")
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)
        ours = {"retries": {"total_max_attempts": 1}, "http_session_cls": OnceSession}
        config = {**_CONFIG, **(self._options.get("config_kwargs") or {}), **ours}
        fs = S3FileSystem(config_kwargs=config, **self.client_options("config_kwargs"))
        fs.retries = 1
        fs.connect()
        if "session" not in self._options:  # a session of the caller's stays as it is
            parse_s3_times(fs, _parse_time)
        return fs

    def read(self, key: str, start: int | None, end: int | None) -> bytes:
        is_long = end is not None and end - (start or 0) >= DATA_BYTES
        data, size_bytes = self._fetcher(key, is_long=is_long)(key, span(start, end))
        # some servers answer a range with the whole object
        return data[start or 0 : end] if len(data) == size_bytes else data

    def tail(self, key: str) -> tuple[bytes, int]:
        return self._fetcher(key, is_long=True)(key, TAIL)

    def write(self, key: str, data: bytes) -> None:
        self._put(key, data)

    def create(self, key: str, data: bytes) -> None:
        version = self._put(key, data, IfNoneMatch="*").get("VersionId")
        if version not in (None, "null") and self._endpoint():
            raise UnsafeStoreError(
                f"{self.url}: versioning is on in this bucket. With versioning, Ceph ignores "
                "`If-None-Match`: later writers replace a commit, and may have replaced "
                f"{self.display_name(key)}. Suspend versioning, or use another bucket; only "
                "Amazon's own S3 supports versioned buckets. Check what the table holds before you "
                "run anything again."
            )

    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        begin = (
            {"ContinuationToken": mark}
            if mark
            else {"StartAfter": _just_below(start_from)}
            if start_from > prefix
            else {}
        )
        page = self.call("list_objects_v2", prefix, Prefix=prefix, **begin)
        try:
            found = [
                ObjectInfo(
                    name=listed["Key"],
                    size_bytes=listed["Size"],
                    modified=listed["LastModified"].timestamp(),
                )
                for listed in page.get("Contents", ())
            ]
            return found, str(page["NextContinuationToken"]) if page["IsTruncated"] else ""
        # for example a proxy's page, which must not pass for an empty list
        except KeyError as error:
            raise TransientError(
                f"{self.display_name(prefix)}: the response to a list request is malformed, it "
                f"lacks {error}",
                sent=True,
            ) from None

    def remove(self, key: str) -> None:
        self.call("delete_object", key, Key=key)

    def remove_all(self, keys: Sequence[str]) -> None:
        """One request, except for names that its XML cannot hold."""
        plain = [key for key in keys if not NOT_IN_XML.search(key)]
        super().remove_all([key for key in keys if NOT_IN_XML.search(key)])
        if not plain:
            return
        objects = {"Objects": [{"Key": key} for key in plain], "Quiet": True}
        try:
            answer = self.persist(lambda: self.call("delete_objects", plain[0], Delete=objects))
        # Ceph requires the right to delete in the whole bucket for a bulk delete
        except StoreDeniedError:
            super().remove_all(plain)
            return
        refused = [
            failure for failure in answer.get("Errors", ()) if failure.get("Code") != "NoSuchKey"
        ]
        if refused:
            kind = (
                StoreDeniedError
                if all(failure.get("Code") == "AccessDenied" for failure in refused)
                else StoreError
            )
            raise kind(
                f"{self.url}: {len(refused)} of {len(plain)} objects could not be deleted; the "
                f"first is {refused[0].get('Key')!r} ({self.scrub(str(refused[0].get('Code')))}). "
                "What was deleted stays deleted; trying again is safe."
            )

    def upload(self, key: str) -> Upload:
        return _Parts(self, key)

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """One request for each 1,000; they are billed until they are aborted, and no listing of
        objects shows them. [GC9]"""
        mark: dict[str, str] = {}
        while True:
            try:
                page = self.persist(
                    partial(self.call, "list_multipart_uploads", prefix, Prefix=prefix, **mark)
                )
            except NotOfferedError:
                return
            for upload in page.get("Uploads", ()):
                yield Unfinished(
                    name=upload["Key"],
                    upload=upload["UploadId"],
                    started=upload["Initiated"].timestamp(),
                )
            following = {
                "KeyMarker": page.get("NextKeyMarker", ""),
                "UploadIdMarker": page.get("NextUploadIdMarker", ""),
            }
            if not page.get("IsTruncated") or following == mark:
                return
            mark = following

    def give_up_unfinished(self, key: str, upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.persist(lambda: self.call("abort_multipart_upload", key, Key=key, UploadId=upload))

    def call(self, method: str, key: str, **arguments: Any) -> Any:
        """One request, by its name in S3's API. key: describes the request."""
        answer = self.once(
            key,
            lambda fs: wait(fs, call_s3(fs, method, Bucket=self._bucket, **arguments), SENDING_S),
        )
        self.tell_time(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))
        return answer

    def _put(self, key: str, data: bytes, **arguments: Any) -> dict[str, Any]:
        """A response without an ETag comes from another service, such as a login page: nothing may
        have been stored."""
        answer: dict[str, Any] = self.call("put_object", key, Key=key, Body=data, **arguments)
        if not answer.get("ETag"):
            raise TransientError(
                (
                    f"{self.display_name(key)}: the answer is not that of an S3 store, it "
                    "names no ETag"
                ),
                sent=True,
            )
        return answer

    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        from botocore import exceptions as boto

        response = getattr(
            error if hasattr(error, "response") else error.__cause__, "response", None
        )
        if isinstance(response, dict) and "ResponseMetadata" in response:
            return self._answer(response, shown), True
        if isinstance(
            error,
            boto.NoCredentialsError | boto.PartialCredentialsError | boto.CredentialRetrievalError,
        ):
            return self.no_credentials(shown), False
        if isinstance(error, boto.ParamValidationError):
            return StoreError(f"{shown}: the client refuses the request: {error}"), False
        # boto also finds the bucket's region by redirected requests
        if isinstance(error, RecursionError):
            return StoreError(
                f"{shown}: the store redirects every request to another region; check the endpoint"
            ), True
        where = self._endpoint() or "S3"
        if _was_not_sent(error):
            return TransientError(
                f"{shown}: no connection to {where}; check the endpoint and the network", sent=False
            ), False
        if isinstance(error, TimeoutError | boto.ReadTimeoutError):
            return TransientError(f"{shown}: no answer from {where} in time", sent=True), False
        return TransientError(
            f"{shown}: the connection to {where} failed ({type(error).__name__})", sent=True
        ), False

    def _answer(self, response: dict[str, Any], shown: str) -> Exception:
        status = int(response["ResponseMetadata"].get("HTTPStatusCode", 0))
        refusal = response.get("Error", {})
        code = str(refusal.get("Code", status))
        if code == "NoSuchBucket":
            return StoreError(
                f"{shown}: there is no bucket {self._bucket}; check the name and the "
                "endpoint, or create it"
            )
        if code == "RequestTimeTooSkewed":
            return StoreDeniedError(
                f"{shown}: this machine's clock and the store's are too far apart ({code}); "
                "set the clock"
            )
        if code in _REGIONS or status in (301, 307):
            advice = "set AWS_DEFAULT_REGION or client_kwargs' region_name"
            return StoreError(
                f"{shown}: bucket {self._bucket} is in another region ({code}); {advice}"
            )
        return self.answered(status, code, shown, str(refusal.get("Message", "")))

    def _fetcher(
        self, key: str, *, is_long: bool
    ) -> Callable[[str, dict[str, str]], tuple[bytes, int]]:
        """The client that gets a range of this object. [ST41]"""
        return self._fetch_data if is_long and key.endswith(".parquet") else self._fetch

    def _fetch_data(self, key: str, headers: dict[str, str]) -> tuple[bytes, int]:
        """Like `_fetch`, but sent by the calling thread, once a GET of s3fs' client has shown how.
        [ST41]"""
        beside = self.connection().beside
        if self._bucket not in beside:
            return self._fetch_and_learn(key, headers)
        gets: Gets | None = beside[self._bucket]
        if gets is None:
            return self._fetch(key, headers)
        try:
            found = self.once(key, lambda _: gets.get(key, headers))
        except (StoreError, TransientError):
            if gets.has_worked:
                raise
            found = 0  # no response at all
        if not isinstance(found, int):
            return found
        self._count_retry()
        told = self._fetch(key, headers)  # its errors are the ones to raise
        is_busy = found != 0 and isinstance(self.answered(found, "", key), TransientError)
        # the status does not depend on the client: it would be the same for both
        if not gets.has_worked and not is_busy:
            beside[self._bucket] = None  # only s3fs' client can do this here, so it continues to
        return told

    def _fetch_and_learn(self, key: str, headers: dict[str, str]) -> tuple[bytes, int]:
        connection, sent = self.connection(), list[tuple[Any, dict[str, Any]]]()
        found = self._fetch(key, headers, sent)
        gets = None
        # another release of botocore may differ inside; the bytes are here in any case
        with contextlib.suppress(Exception):
            gets = clone_request(connection.fs, *sent[-1], key)
        connection.beside.setdefault(self._bucket, gets)
        return found

    def _fetch(
        self, key: str, headers: dict[str, str], sent: list[Any] | None = None
    ) -> tuple[bytes, int]:
        """The requested bytes, and the length of the whole object. sent: receives what the client
        sends."""

        async def read(fs: Any) -> tuple[bytes, int]:
            SENT.set(sent)
            answer = await call_s3(fs, "get_object", Bucket=self._bucket, Key=key, **headers)
            async with answer["Body"] as body:
                data = await body.read()
            return data, whole_size(answer.get("ContentRange"), data)

        return self.once(key, lambda fs: wait(fs, read(fs)))

    def _endpoint(self) -> str:
        """The endpoint of a store that is not Amazon's; empty for Amazon's own."""
        endpoint = public_endpoint(str(self.connection().fs.s3.meta.endpoint_url))
        host = urlsplit(endpoint).hostname or ""
        return "" if host.endswith((".amazonaws.com", ".amazonaws.com.cn")) else endpoint


class _Parts:
    """A multipart upload: invisible before it is completed."""

    def __init__(self, backend: S3Backend, key: str) -> None:
        self._backend, self._key = backend, key
        self._upload = str(
            backend.persist(lambda: backend.call("create_multipart_upload", key, Key=key))[
                "UploadId"
            ]
        )
        self._tags: list[str] = []
        self._sent_bytes = 0

    def send(self, data: bytes) -> None:
        number = len(self._tags) + 1
        if number > MAX_PARTS:
            raise StoreError(
                f"{self._backend.display_name(self._key)} has more than {MAX_PARTS} parts. "
                "Lower target_file_size."
            )
        self._tags.append(self._tag(self._ask("upload_part", PartNumber=number, Body=data)))
        self._sent_bytes += len(data)

    def finish(self, data: bytes) -> None:
        self.send(data)
        parts = [
            {"PartNumber": number, "ETag": tag} for number, tag in enumerate(self._tags, start=1)
        ]
        try:
            answer = self._ask("complete_multipart_upload", MultipartUpload={"Parts": parts})
        # no such upload: an earlier request completed it, and its response was lost
        except FileNotFoundError:
            answer = {}
        if not answer.get("ETag"):
            self._check()

    def discard(self) -> None:
        self._ask("abort_multipart_upload")

    def _tag(self, answer: dict[str, Any]) -> str:
        if not answer.get("ETag"):
            shown = self._backend.display_name(self._key)
            raise StoreError(
                f"{shown}: the answer is not that of an S3 store, it names no ETag. Run the "
                "task again."
            )
        return str(answer["ETag"])

    def _check(self) -> None:
        """StoreError unless the object exists with the length that was sent."""
        shown = self._backend.display_name(self._key)
        try:
            found = self._backend.persist(
                lambda: self._backend.call("head_object", self._key, Key=self._key)
            )["ContentLength"]
        except FileNotFoundError:
            raise StoreError(
                f"{shown}: the store has forgotten this upload. Run the task again."
            ) from None
        if found != self._sent_bytes:
            raise StoreError(
                f"{shown} has {found} bytes where {self._sent_bytes} were written. Run the "
                "task again."
            )

    def _ask(self, method: str, **arguments: Any) -> Any:
        """A request about this upload that may be carried out twice."""
        return self._backend.persist(
            lambda: self._backend.call(
                method, self._key, Key=self._key, UploadId=self._upload, **arguments
            )
        )


def _was_not_sent(error: Exception) -> bool:
    """Whether there was no connection. boto also raises EndpointConnectionError when a connection
    breaks half-way."""
    from aiohttp import ClientConnectorError
    from botocore import exceptions as boto

    if isinstance(error, boto.EndpointConnectionError | boto.SSLError):
        return isinstance(error.__context__, ClientConnectorError | gaierror)
    return isinstance(error, boto.ConnectTimeoutError | boto.ProxyConnectionError)


def _just_below(name: str) -> str:
    """A text below `name` with few others between them; a listing that starts after it starts at
    `name` or slightly before."""
    last = ord(name[-1])
    if last <= 1:
        return name[:-1]
    return name[:-1] + ("\ud7ff" if last == 0xE000 else chr(last - 1))
