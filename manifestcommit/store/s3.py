"""S3 and compatible stores: one conditional single-part PUT per create, no cache, no existence
checks. [ST10] [ST11] [ST13]

The options are those of s3fs. botocore turns them, and the environment, into credentials, a region,
addresses and headers: of each kind of request its client makes one that is not sent, and all
requests are made after that pattern, signed by botocore and sent by store.http.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import inspect
import logging
import os
import re
import socket
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from ..errors import StoreDeniedError, StoreError, UnsafeStoreError, UsageError
from .arrow_filesystem import TAIL, span, whole_size
from .backend import NOT_IN_XML, NotOfferedError, Upload
from .base import ObjectInfo, Unfinished
from .http import (
    CONNECT_S,
    OF_FILES,
    READ_S,
    Answer,
    HttpBackend,
    HttpClient,
    Way,
    parsed,
    text_of,
)
from .options import StorageOptions, public_endpoint
from .retry import TransientError

MAX_PARTS = 10_000
_CONFIG = {
    "connect_timeout": CONNECT_S,
    "read_timeout": READ_S,
    # `rclone serve s3` returns the whole object's checksum with a part of it
    "response_checksum_validation": "when_required",
}
_SECRETS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_KEY = "KEY"
# what a request of each kind needs beside the bucket
_KINDS: dict[str, dict[str, Any]] = {
    "put_object": {"Key": _KEY, "Body": b""},
    "get_object": {"Key": _KEY},
    "head_object": {"Key": _KEY},
    "delete_object": {"Key": _KEY},
    "list_objects_v2": {},
    "delete_objects": {"Delete": {"Objects": [{"Key": _KEY}]}},
    "create_multipart_upload": {"Key": _KEY},
    "upload_part": {"Key": _KEY, "UploadId": "-", "PartNumber": 1, "Body": b""},
    "complete_multipart_upload": {"Key": _KEY, "UploadId": "-", "MultipartUpload": {"Parts": []}},
    "abort_multipart_upload": {"Key": _KEY, "UploadId": "-"},
    "list_multipart_uploads": {},
}
_OF_ONE_REQUEST = re.compile(
    r"authorization|x-amz-date|x-amz-content-sha256|x-amz-security-token|amz-sdk-.*"
    r"|content-(length|md5)|expect|transfer-encoding|x-amz-trailer|x-amz-checksum-(?!algorithm).*"
)
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/s3/aws4_request, ")
_CHECKSUMS: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "SHA1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "SHA256": lambda data: hashlib.sha256(data).digest(),
}
_REGIONS = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "301",
    }
)


class _Pattern(NamedTuple):
    """A request of one kind. url: of the bucket, or of its objects without their keys; region:
    empty if requests are not signed; checksum: which a body is sent with; empty: none."""

    method: str
    url: str
    headers: dict[str, str]
    region: str
    checksum: str


class _NotToBeSentError(Exception):
    """A request as botocore's client would have sent it."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class Account:
    """One process' way to S3 with one set of options; for any number of threads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.session import Session  # late: an extra

        # At DEBUG it logs what it signs, with the session's token. A level of its own keeps that
        # from a root logger at DEBUG; whoever sets the level of "botocore" has asked for it.
        log = logging.getLogger("botocore")
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)
        given = {name: value for name, value in options.items() if name not in OF_FILES}
        config = {**_CONFIG, **(given.pop("config_kwargs", None) or {})}
        config["retries"] = {"total_max_attempts": 1}
        self._more = dict(given.pop("s3_additional_kwargs", None) or {})
        checksum = self._more.get("ChecksumAlgorithm")
        if checksum not in (None, *_CHECKSUMS):
            raise UsageError(
                f"ChecksumAlgorithm in s3_additional_kwargs is one of {', '.join(_CHECKSUMS)}, not "
                f"{checksum!r}"
            )
        if given.pop("requester_pays", False):
            self._more["RequestPayer"] = "requester"
        self._made_of = _client_arguments(given)
        if given.pop("anon", False):
            config["signature_version"] = UNSIGNED
            self._made_of = {
                name: value for name, value in self._made_of.items() if name not in _SECRETS
            }
        self._session = _session(given) or Session(**given)
        self._config = Config(**config)
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {"": self._client("")}
        self._patterns: dict[tuple[str, str, str], _Pattern] = {}
        self._regions: dict[str, str] = {}  # of buckets that are elsewhere than assumed
        self.endpoint = str(self._clients[""].meta.endpoint_url)
        self.http = HttpClient(self._way())
        self._credentials = self._found_credentials()

    def send(
        self,
        kind: str,
        bucket: str,
        key: str = "",
        query: Mapping[str, str] = {},  # never mutated
        headers: Mapping[str, str] = {},
        body: bytes = b"",
    ) -> Answer:
        """One request; a second one only if the bucket is in another region of Amazon's, whose
        name comes with the refusal of the first."""
        answer = self._send(kind, bucket, key, query, headers, body)
        elsewhere = answer.headers.get("x-amz-bucket-region")
        if answer.status not in (301, 307, 400, 403) or not elsewhere or not self.is_amazon:
            return answer
        if elsewhere in (self._regions.get(bucket), self._clients[""].meta.region_name):
            return answer
        self._regions[bucket] = elsewhere
        return self._send(kind, bucket, key, query, headers, body)

    @property
    def is_amazon(self) -> bool:
        host = urlsplit(self.endpoint).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    def _send(
        self,
        kind: str,
        bucket: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        pattern = self._pattern(kind, bucket)
        url = pattern.url + quote(key, safe="/~")
        if query:
            pairs = (f"{name}={quote(value, safe='-_.~')}" for name, value in query.items())
            url += f"?{'&'.join(pairs)}"
        sent = {**pattern.headers, **headers}
        if pattern.checksum:
            digest = base64.b64encode(_CHECKSUMS[pattern.checksum](body)).decode()
            sent[f"x-amz-checksum-{pattern.checksum.lower()}"] = digest
        if pattern.region:
            request = AWSRequest(pattern.method, url, headers=sent, data=body)
            request.context["client_config"] = self._config
            account = self._credentials.get_frozen_credentials()
            S3SigV4Auth(account, "s3", pattern.region).add_auth(request)
            sent = dict(request.headers.items())
        if pattern.method in ("PUT", "POST"):
            sent["Content-Length"] = str(len(body))
        return self.http.send(pattern.method, url, sent, body)

    def _pattern(self, kind: str, bucket: str) -> _Pattern:
        region = self._regions.get(bucket, "")
        found = self._patterns.get((kind, bucket, region))
        if found is None:
            with self._lock:
                found = self._new_pattern(kind, bucket, region)
            self._patterns[kind, bucket, region] = found
        return found

    def _new_pattern(self, kind: str, bucket: str, region: str) -> _Pattern:
        if region not in self._clients:
            self._clients[region] = self._client(region)
        client = self._clients[region]
        operation = client.meta.service_model.operation_model(
            client.meta.method_to_api_mapping[kind]
        )
        takes = operation.input_shape.members
        more = {name: value for name, value in self._more.items() if name in takes}
        try:
            getattr(client, kind)(**{**more, "Bucket": bucket, **_KINDS[kind]})
        except _NotToBeSentError as made:
            request = made.request
        headers = {
            name: value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        login = headers.get("Authorization", "")
        signed = _SIGNED.match(login)
        if login and signed is None:
            raise UsageError(
                f"s3://{bucket}: requests are to be signed in another way than s3v4; leave "
                "signature_version out of config_kwargs"
            )
        return _Pattern(
            method=request.method,
            url=request.url.partition("?")[0].removesuffix(_KEY if "Key" in _KINDS[kind] else ""),
            headers={
                name: value
                for name, value in headers.items()
                if not _OF_ONE_REQUEST.fullmatch(name.lower())
                or name.lower() == "x-amz-sdk-checksum-algorithm"
            },
            region=signed[1] if signed else "",
            checksum=headers.get("x-amz-sdk-checksum-algorithm", ""),
        )

    def _client(self, region: str) -> Any:
        made_of = {**self._made_of, **({"region_name": region} if region else {})}
        client = self._session.create_client("s3", config=self._config, **made_of)
        client.meta.events.register("before-send.s3", _keep)
        return client

    def _found_credentials(self) -> Any:
        from botocore.credentials import Credentials

        key, secret, token = (self._made_of.get(name) for name in _SECRETS)
        if key and secret:
            return Credentials(key, secret, token)
        return self._session.get_credentials()

    def _way(self) -> Way:
        from botocore.httpsession import get_cert_path
        from botocore.utils import get_environ_proxies

        config = self._clients[""].meta.config
        if config.proxies_config:
            raise UsageError("proxies_config in config_kwargs is not supported")
        verify = self._made_of.get("verify")
        if verify is None:
            verify = self._session.get_config_variable("ca_bundle")
        keepalive = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] if config.tcp_keepalive else []
        return Way(
            connect_s=config.connect_timeout,
            read_s=config.read_timeout,
            verify=get_cert_path(
                os.environ.get("REQUESTS_CA_BUNDLE", True) if verify is None else verify
            ),
            certificate=config.client_cert,
            proxies=(
                get_environ_proxies(self.endpoint) if config.proxies is None else config.proxies
            ),
            socket_options=keepalive,
        )


def _keep(request: Any, **_: Any) -> None:
    raise _NotToBeSentError(request)


def _session(given: dict[str, Any]) -> Any:
    """The caller's own session, taken from what was given, if there is one."""
    from botocore.session import Session

    session = given.pop("session", None)
    if session is not None and (
        not isinstance(session, Session) or inspect.iscoroutinefunction(session.get_credentials)
    ):
        raise UsageError(
            "session in storage_options is a botocore.session.Session, or leave it out and give "
            f"profile; this one is a {type(session).__module__}.{type(session).__qualname__}"
        )
    return session


def _credential_errors() -> tuple[type[Exception], ...]:
    from botocore import exceptions as boto

    names = ("CredentialRetrieval", "NoAuthToken", "NoCredentials", "PartialCredentials", "SSO")
    return tuple(getattr(boto, f"{name}Error") for name in (*names, "TokenRetrieval"))


def _client_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """What the client is made of, taken from the options: s3fs' own names win over
    client_kwargs."""
    made_of = dict(given.pop("client_kwargs", None) or {})
    for name, other in (("key", "username"), ("secret", "password")):
        if given.get(name) and given.get(other):
            raise UsageError(f"give {name} or {other} in storage_options, not both")
    use_ssl = given.pop("use_ssl", True)
    made_of.setdefault("use_ssl", use_ssl)
    names = {
        "aws_access_key_id": ("key", "username"),
        "aws_secret_access_key": ("secret", "password"),
        "aws_session_token": ("token",),
        "endpoint_url": ("endpoint_url",),
    }
    for name, ours in names.items():
        value = next(filter(None, [given.pop(each, None) for each in ours]), None)
        if value is not None:
            made_of[name] = value
    return made_of


class S3Backend(HttpBackend):
    """Requests to one bucket, each sent once. [ST14]"""

    name = "s3://"
    sections = ("s3a", "s3")
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

    @property
    def where(self) -> str:
        return self._endpoint() or "S3"

    def connect(self) -> Any:
        try:
            return Account(self.given())
        except _credential_errors():
            raise self.no_credentials(self.url) from None

    def read(self, key: str, start: int | None, end: int | None) -> tuple[bytes, int]:
        data, size_bytes = self._fetch(key, span(start, end))
        # some servers answer a range with the whole object
        return (data[start or 0 : end] if len(data) == size_bytes else data), size_bytes

    def tail(self, key: str) -> tuple[bytes, int]:
        return self._fetch(key, TAIL)

    def write(self, key: str, data: bytes) -> None:
        self._put(key, data)

    def create(self, key: str, data: bytes) -> None:
        version = self._put(key, data, {"If-None-Match": "*"}).headers.get("x-amz-version-id")
        if version not in (None, "null") and self._endpoint():
            raise UnsafeStoreError(
                f"{self.url}: versioning is on in this bucket. With versioning, Ceph ignores "
                "`If-None-Match`: later writers replace a commit, and may have replaced "
                f"{self.display_name(key)}. Suspend versioning, or use another bucket; only "
                "Amazon's own S3 supports versioned buckets. Check what the table holds before you "
                "run anything again."
            )

    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        if mark:
            query["continuation-token"] = mark
        elif start_from > prefix:
            query["start-after"] = _just_below(start_from)
        page = self.ask_xml("list_objects_v2", prefix, "ListBucketResult", query)
        try:
            found = [
                ObjectInfo(
                    name=_named(page, text_of(listed, "Key")),
                    size_bytes=int(text_of(listed, "Size")),
                    modified=_time(text_of(listed, "LastModified")),
                    etag=listed.findtext("ETag", ""),
                )
                for listed in page.iterfind("Contents")
            ]
            is_last = text_of(page, "IsTruncated") != "true"
            return found, "" if is_last else text_of(page, "NextContinuationToken")
        except (KeyError, ValueError) as error:
            raise self.malformed(prefix, f"it lacks {error}") from None

    def folder_page(self, prefix: str, mark: str) -> tuple[Sequence[str], str]:
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix, "delimiter": "/"}
        if mark:
            query["continuation-token"] = mark
        page = self.ask_xml("list_objects_v2", prefix, "ListBucketResult", query)
        found = [_named(page, text_of(each, "Prefix")) for each in page.iterfind("CommonPrefixes")]
        is_last = text_of(page, "IsTruncated") != "true"
        return found, "" if is_last else text_of(page, "NextContinuationToken")

    def remove(self, key: str) -> None:
        self.ask("delete_object", key)

    def remove_all(self, keys: Sequence[str]) -> None:
        """One request, except for names that its XML cannot hold."""
        plain = [key for key in keys if not NOT_IN_XML.search(key)]
        super().remove_all([key for key in keys if NOT_IN_XML.search(key)])
        if not plain:
            return
        try:
            refused = self.persist(partial(self._remove_plain, plain))
        # Ceph requires the right to delete in the whole bucket for a bulk delete
        except StoreDeniedError:
            super().remove_all(plain)
            return
        if refused:
            key, code = refused[0]
            is_denied = all(each == "AccessDenied" for _, each in refused)
            raise (StoreDeniedError if is_denied else StoreError)(
                f"{self.url}: {len(refused)} of {len(plain)} objects could not be deleted; the "
                f"first is {key!r} ({self.scrub(code)}). "
                "What was deleted stays deleted; trying again is safe."
            )

    def upload(self, key: str) -> Upload:
        return _Parts(self, key)

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """One request for each 1,000; they are billed until they are aborted, and no listing of
        objects shows them. [GC9]"""
        # without "encoding-type", which Ceph follows here, and does not say in its response
        query = {"uploads": "", "prefix": prefix}
        ask = partial(self.ask_xml, "list_multipart_uploads", prefix, "ListMultipartUploadsResult")
        while True:
            try:
                page = self.persist(partial(ask, query))
            except NotOfferedError:
                return
            for upload in page.iterfind("Upload"):
                yield Unfinished(
                    name=_named(page, text_of(upload, "Key")),
                    upload=text_of(upload, "UploadId"),
                    started=_time(text_of(upload, "Initiated")),
                )
            following = {
                "key-marker": _named(page, page.findtext("NextKeyMarker", "")),
                "upload-id-marker": page.findtext("NextUploadIdMarker", ""),
            }
            if page.findtext("IsTruncated") != "true" or following.items() <= query.items():
                return
            query = query | following

    def give_up_unfinished(self, key: str, upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.persist(
                lambda: self.ask("abort_multipart_upload", key, query={"uploadId": upload})
            )

    def ask(
        self,
        kind: str,
        key: str,
        query: Mapping[str, str] = {},  # never mutated
        headers: Mapping[str, str] = {},
        body: bytes = b"",
    ) -> Answer:
        """One request, by the name of its kind in botocore. key: the object, or describes the
        request."""
        return self.once(key, lambda account: self._sent(account, kind, key, query, headers, body))

    def ask_xml(
        self,
        kind: str,
        key: str,
        root: str,
        query: Mapping[str, str],
        headers: Mapping[str, str] = {},  # never mutated
        body: bytes = b"",
    ) -> ElementTree.Element:
        """One request whose response is a document with this root."""
        return self.once(
            key,
            lambda account: self.document(
                self._sent(account, kind, key, query, headers, body), key, root
            ),
        )

    def _sent(
        self,
        account: Account,
        kind: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        target = key if "Key" in _KINDS[kind] else ""
        return self.told(account.send(kind, self._bucket, target, query, headers, body))

    def _remove_plain(self, keys: Sequence[str]) -> list[tuple[str, str]]:
        """One request for up to a thousand objects; returns the refusals: names and codes."""
        objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"{_DELETE}{objects}<Quiet>true</Quiet></Delete>".encode()
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        headers = {"Content-MD5": base64.b64encode(digest).decode()}
        answer = self.ask_xml(
            "delete_objects", keys[0], "DeleteResult", {"delete": ""}, headers, body
        )
        errors = answer.iterfind("Error")
        refused = [(each.findtext("Key", ""), each.findtext("Code", "")) for each in errors]
        return [each for each in refused if each[1] != "NoSuchKey"]

    def _put(self, key: str, data: bytes, headers: Mapping[str, str] = {}) -> Answer:
        """A response without an ETag comes from another service, such as a login page: nothing may
        have been stored."""
        answer = self.ask("put_object", key, headers=headers, body=data)
        if not answer.headers.get("ETag"):
            raise TransientError(
                f"{self.display_name(key)}: the answer is not that of an S3 store, it names no "
                "ETag",
                sent=True,
            )
        return answer

    def _fetch(self, key: str, headers: Mapping[str, str]) -> tuple[bytes, int]:
        """The requested bytes, and the length of the whole object."""
        answer = self.ask("get_object", key, headers=headers)
        return answer.body, whole_size(answer.headers.get("Content-Range"), answer.body)

    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        from botocore.exceptions import BotoCoreError

        if isinstance(error, _credential_errors()):
            return self.no_credentials(shown), False
        if isinstance(error, BotoCoreError):  # of the pattern: nothing was sent
            return StoreError(f"{shown}: the client refuses the request: {error}"), False
        return super().translate(error, shown)

    def refused(self, answer: Answer, shown: str) -> Exception:
        said = parsed(answer.body)
        status, code, text = answer.status, "", ""
        if said is not None:
            code, text = said.findtext("Code", ""), said.findtext("Message", "")
        code = code or str(status)
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
        return self.answered(status, code, shown, text)

    def _endpoint(self) -> str:
        """The endpoint of a store that is not Amazon's; empty for Amazon's own."""
        account: Account = self.connection().client
        return "" if account.is_amazon else public_endpoint(account.endpoint)


class _Parts:
    """A multipart upload: invisible before it is completed."""

    at_once = 4

    def __init__(self, backend: S3Backend, key: str) -> None:
        self._backend, self._key = backend, key
        begun = backend.persist(
            lambda: backend.ask_xml(
                "create_multipart_upload", key, "InitiateMultipartUploadResult", {"uploads": ""}
            )
        )
        self._upload = begun.findtext("UploadId", "")
        self._parts: dict[int, tuple[str, int]] = {}  # tag and size, by number

    def send(self, number: int, data: bytes) -> None:
        if number > MAX_PARTS:
            raise StoreError(
                f"{self._backend.display_name(self._key)} has more than {MAX_PARTS} parts. "
                "Lower target_file_size."
            )
        answer = self._ask("upload_part", {"partNumber": str(number)}, body=data)
        if not answer.headers.get("ETag"):
            raise self._failed("was not stored: the answer names no ETag, as S3's do")
        self._parts[number] = answer.headers["ETag"], len(data)

    def finish(self, number: int, data: bytes) -> None:
        self.send(number, data)
        parts = "".join(
            f"<Part><PartNumber>{part}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for part, (tag, _) in sorted(self._parts.items())
        )
        body = f"{_COMPLETE}{parts}</CompleteMultipartUpload>".encode()
        about = {"uploadId": self._upload}
        kind, root = "complete_multipart_upload", "CompleteMultipartUploadResult"
        try:
            answer = self._backend.persist(
                lambda: self._backend.ask_xml(kind, self._key, root, about, body=body)
            )
            is_told = bool(answer.findtext("ETag"))
        # no such upload: an earlier request completed it, and its response was lost
        except FileNotFoundError:
            is_told = False
        if is_told:
            return
        try:
            head = self._backend.persist(lambda: self._backend.ask("head_object", self._key))
        except FileNotFoundError:
            raise self._failed("is not there: the store has forgotten this upload") from None
        found = int(head.headers.get("Content-Length", 0))
        sent = sum(size for _, size in self._parts.values())
        if found != sent:
            raise self._failed(f"has {found} bytes where {sent} were written")

    def discard(self) -> None:
        self._ask("abort_multipart_upload", {})

    def _failed(self, why: str) -> StoreError:
        return StoreError(f"{self._backend.display_name(self._key)} {why}. Run the task again.")

    def _ask(self, kind: str, query: Mapping[str, str], body: bytes = b"") -> Answer:
        """A request about this upload that may be carried out twice."""
        about = {"uploadId": self._upload, **query}
        return self._backend.persist(lambda: self._backend.ask(kind, self._key, about, body=body))


def _just_below(name: str) -> str:
    """A text below `name` with few others between them; a listing that starts after it starts at
    `name` or slightly before."""
    last = ord(name[-1])
    if last <= 1:
        return name[:-1]
    return name[:-1] + ("\ud7ff" if last == 0xE000 else chr(last - 1))


_DELETE = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
_CODED = re.compile("[%+]").search
_COMPLETE = '<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'


def _named(page: ElementTree.Element, name: str) -> str:
    """An object's name as a list gives it: some servers ignore the wish for percent-encoding."""
    return unquote_plus(name) if _CODED(name) and page.findtext("EncodingType") == "url" else name


def _time(text: str) -> float:
    """The same as botocore's own parser, which takes most of the time of a listing: it tries every
    form of a date on each object. Lists have one form."""
    if text.endswith("Z"):
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(text).timestamp()
    from botocore.utils import parse_timestamp

    return float(parse_timestamp(text).timestamp())
