"""S3 and what speaks like it: one conditional single-part PUT per create, no cache, no existence checks. [ST10] [ST11] [ST13]

s3fs finds credentials and endpoints as its users know it, and keeps the connections; the requests are made here, by name, since its
file-like calls ask before they act, split names at `?`, and keep listings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from socket import gaierror
from typing import Any
from urllib.parse import urlsplit

from ..errors import StoreDeniedError, StoreError, UnsafeStoreError, UsageError
from .base import ObjectInfo
from .names import NOT_IN_XML
from .options import StorageOptions
from .ranged import TAIL_BYTES
from .requests import CONNECT_S, READ_S, Backend, Upload, wait
from .retry import TransientError

MAX_PARTS = 10_000
_CONFIG = {
    "connect_timeout": CONNECT_S,
    "read_timeout": READ_S,
    "max_pool_connections": 64,
    "response_checksum_validation": "when_required",  # some servers send the whole object's checksum with a part of it
}
_BUSY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
_BUSY_CODES = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "ThrottlingException", "Throttling"})
_CREDENTIALS = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"})
_REGIONS = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "301"})


class S3Backend(Backend):
    """Requests to one bucket, each sent once. [ST14]"""

    name = "s3://"
    extra = "pip install 'manifestcommit[s3]'"
    pages_are_ordered = True
    removed_at_once = 1000

    def __init__(self, bucket: str, options: StorageOptions) -> None:
        super().__init__(options, "")
        if bucket.startswith("arn:"):
            raise UsageError(f"s3://{bucket}: name the bucket, or the alias of the access point, instead of an ARN")
        if bucket.endswith("--x-s3"):
            raise UsageError(f"s3://{bucket} is a directory bucket, whose lists have no order; commits rely on it. Use another bucket.")
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

        given = dict(self._options)
        config = {**_CONFIG, **(given.pop("config_kwargs", None) or {}), "retries": {"total_max_attempts": 1}}
        for unwanted in ("use_listings_cache", "skip_instance_cache", "asynchronous", "loop"):
            given.pop(unwanted, None)
        fs = S3FileSystem(use_listings_cache=False, skip_instance_cache=True, config_kwargs=config, **given)
        fs.retries = 1
        fs.connect()
        return fs

    def read(self, key: str, start: int | None, end: int | None) -> bytes:
        span = f"bytes={start or 0}-{'' if end is None else end - 1}"
        return self._fetch(key, {} if start is None and end is None else {"Range": span})[0]

    def tail(self, key: str) -> tuple[bytes, int]:
        return self._fetch(key, {"Range": f"bytes=-{TAIL_BYTES}"})

    def write(self, key: str, data: bytes) -> None:
        self.call("put_object", key, Key=key, Body=data)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self.call("put_object", key, Key=key, Body=data, IfNoneMatch="*")
            return True
        except _S3Error as error:
            if error.status == 412:
                return False
            if error.status == 501:
                raise UnsafeStoreError(
                    f"{self.told(key)}: this store knows no conditional create; nothing can be committed to it safely"
                ) from None
            raise

    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        begin = {"ContinuationToken": mark} if mark else {"StartAfter": _just_below(start_from)} if start_from > prefix else {}
        page = self.call("list_objects_v2", prefix, Prefix=prefix, **begin)
        found = [
            ObjectInfo(name=each["Key"], size_bytes=each["Size"], modified=each["LastModified"].timestamp())
            for each in page.get("Contents", ())
        ]
        return found, str(page["NextContinuationToken"]) if page.get("IsTruncated") else ""

    def remove(self, key: str) -> None:
        self.call("delete_object", key, Key=key)

    def remove_all(self, keys: Sequence[str]) -> None:
        """One request, but for names that its XML cannot hold."""
        plain = [key for key in keys if not NOT_IN_XML.search(key)]
        super().remove_all([key for key in keys if NOT_IN_XML.search(key)])
        if not plain:
            return
        objects = {"Objects": [{"Key": key} for key in plain], "Quiet": True}
        answer = self.persist(lambda: self.call("delete_objects", plain[0], Delete=objects))
        refused = [each for each in answer.get("Errors", ()) if each.get("Code") != "NoSuchKey"]
        if refused:
            raise StoreError(
                f"{self.url}: {len(refused)} of {len(plain)} objects could not be deleted; the first is {refused[0].get('Key')!r} "
                f"({self.scrub(str(refused[0].get('Code')))}). What was deleted stays deleted; trying again is safe."
            )

    def upload(self, key: str) -> Upload:
        return _Parts(self, key)

    def call(self, method: str, key: str, **arguments: Any) -> Any:
        """One request by the name that S3's API has for it. key: what it is about."""
        return self.once(key, lambda fs: fs.call_s3(method, Bucket=self._bucket, **arguments))

    def meaning(self, error: Exception, told: str) -> tuple[Exception, bool]:
        from botocore import exceptions as boto

        response = getattr(error if hasattr(error, "response") else error.__cause__, "response", None)
        if isinstance(response, dict) and "ResponseMetadata" in response:
            return self._answer(response, told), True
        if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.CredentialRetrievalError):
            return StoreError(
                f"{told}: no usable credentials were found. Give them in storage_options (key, secret), in AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY or a profile; for a public bucket anon=True."
            ), False
        if isinstance(error, boto.ParamValidationError):
            return StoreError(f"{told}: the client refuses the request: {error}"), False
        where = self._endpoint() or "S3"
        if _was_not_sent(error):
            return TransientError(f"{told}: no connection to {where}; check the endpoint and the network", sent=False), False
        if isinstance(error, TimeoutError | boto.ReadTimeoutError):
            return TransientError(f"{told}: no answer from {where} in time", sent=True), False
        return TransientError(f"{told}: the connection to {where} failed ({type(error).__name__})", sent=True), False

    def _answer(self, response: dict[str, Any], told: str) -> Exception:
        status = int(response["ResponseMetadata"].get("HTTPStatusCode", 0))
        refusal = response.get("Error", {})
        code = str(refusal.get("Code", status))
        if code == "NoSuchBucket":
            return _S3Error(f"{told}: there is no bucket {self._bucket}; check the name and the endpoint, or create it", status)
        if status == 404:
            return FileNotFoundError(told)
        if status in _BUSY_STATUS or code in _BUSY_CODES:
            return TransientError(f"{told}: the store is busy or failed (HTTP {status}, {code})", sent=True)
        if code in _CREDENTIALS:
            return _S3Error(f"{told}: the store does not accept the credentials ({code}); check key, secret and token", status)
        if code == "RequestTimeTooSkewed":
            return StoreDeniedError(f"{told}: this machine's clock and the store's are too far apart ({code}); set the clock")
        if status in (401, 403):
            return StoreDeniedError(
                f"{told}: access denied ({code}): these credentials may not do this; spec/stores.md tells what is needed"
            )
        if code in _REGIONS or status in (301, 307):
            advice = "set AWS_DEFAULT_REGION or client_kwargs' region_name"
            return _S3Error(f"{told}: bucket {self._bucket} is in another region ({code}); {advice}", status)
        return _S3Error(f"{told}: refused by the store (HTTP {status}, {code}: {refusal.get('Message', '')})", status)

    def _fetch(self, key: str, span: dict[str, str]) -> tuple[bytes, int]:
        """The bytes asked for, and the length of the whole object; no bytes where the range begins at or behind its end."""

        async def read(fs: Any) -> tuple[bytes, int]:
            answer = await fs._call_s3("get_object", Bucket=self._bucket, Key=key, **span)
            async with answer["Body"] as body:
                data = await body.read()
            return data, int(str(answer.get("ContentRange") or f"/{len(data)}").rpartition("/")[2])

        try:
            return self.once(key, lambda fs: wait(fs, read(fs)))
        except _S3Error as error:
            if error.status == 416:
                return b"", 0
            raise

    def _endpoint(self) -> str:
        """Where a store that is not Amazon's answers, without credentials; empty for Amazon's own."""
        parts = urlsplit(str(self.connection().fs.s3.meta.endpoint_url))
        host = parts.hostname or ""
        if host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            return ""
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "") + parts.path.rstrip("/")


class _S3Error(StoreError):
    """A request that S3 refused. status: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> Any:
        return _S3Error, (str(self), self.status)


class _Parts:
    """A multipart upload: nothing is seen of it before it is completed."""

    def __init__(self, backend: S3Backend, key: str) -> None:
        self._backend, self._key = backend, key
        self._upload = str(backend.persist(lambda: backend.call("create_multipart_upload", key, Key=key))["UploadId"])
        self._tags: list[str] = []
        self._sent_bytes = 0

    def send(self, data: bytes) -> None:
        number = len(self._tags) + 1
        if number > MAX_PARTS:
            raise StoreError(f"{self._backend.told(self._key)} has more than {MAX_PARTS} parts. Lower target_file_size.")
        self._tags.append(str(self._ask("upload_part", PartNumber=number, Body=data)["ETag"]))
        self._sent_bytes += len(data)

    def finish(self, data: bytes) -> None:
        self.send(data)
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(self._tags, start=1)]
        try:
            self._ask("complete_multipart_upload", MultipartUpload={"Parts": parts})
        except FileNotFoundError:  # no such upload: an earlier request completed it, and its answer was lost
            found = self._backend.persist(lambda: self._backend.call("head_object", self._key, Key=self._key))["ContentLength"]
            if found != self._sent_bytes:
                told = self._backend.told(self._key)
                raise StoreError(f"{told} has {found} bytes where {self._sent_bytes} were written. Run the task again.") from None

    def discard(self) -> None:
        with contextlib.suppress(StoreError, FileNotFoundError):
            self._ask("abort_multipart_upload")

    def _ask(self, method: str, **arguments: Any) -> Any:
        """A request about this upload that may be carried out twice."""
        return self._backend.persist(lambda: self._backend.call(method, self._key, Key=self._key, UploadId=self._upload, **arguments))


def _was_not_sent(error: Exception) -> bool:
    """Whether there never was a connection. boto says EndpointConnectionError of a connection that broke half-way, too."""
    from aiohttp import ClientConnectorError
    from botocore import exceptions as boto

    if isinstance(error, boto.EndpointConnectionError | boto.SSLError):
        return isinstance(error.__context__, ClientConnectorError | gaierror)
    return isinstance(error, boto.ConnectTimeoutError | boto.ProxyConnectionError)


def _just_below(name: str) -> str:
    """A text below `name` with few others between them; a list that starts after it starts at `name` or a little before."""
    last = ord(name[-1])
    if last <= 1:
        return name[:-1]
    return name[:-1] + ("\ud7ff" if last == 0xE000 else chr(last - 1))
