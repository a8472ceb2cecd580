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
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import msgspec

from ..errors import StoreDeniedError, StoreError, StoreUnclearError, UnsafeStoreError, UsageError
from .base import ObjectInfo, StorageOptions, Unfinished
from .http import CONNECT_S, READ_S, Answer, HttpClient, NotMadeError, Way, from_environment, quiet
from .object_store import (
    NOT_IN_XML,
    NoCredentialsError,
    NotOfferedError,
    ObjectStore,
    Page,
    Request,
    TakenError,
    document,
    query_of,
    text_of,
)

_CONFIG = {
    "connect_timeout": CONNECT_S,
    "read_timeout": READ_S,
    # `rclone serve s3` returns the whole object's checksum with a part of it
    "response_checksum_validation": "when_required",
}
_SECRETS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_NAMES = ("key", "secret", "token", "endpoint_url")  # of these in s3fs
_KEY = "KEY"
# what a request of each kind needs beside the bucket
_KINDS: dict[str, dict[str, Any]] = {
    "put_object": {"Key": _KEY, "Body": b""},
    "get_object": {"Key": _KEY},
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
    r"|(x-amz-decoded-)?content-length|content-md5|expect|transfer-encoding|x-amz-trailer"
    r"|x-amz-checksum-(?!algorithm).*"
)
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/s3/aws4_request, ")
_CHECKSUMS = ("CRC32", "SHA1", "SHA256")  # that botocore can make without another package


class _Pattern(NamedTuple):
    """A request of one kind. path: of the bucket, or of its objects without their keys; region:
    empty if requests are not signed; checksum: which a body is sent with; empty: none."""

    method: str
    origin: str
    path: str
    headers: dict[str, str]
    region: str
    checksum: str


class _NotToBeSentError(Exception):
    """Its argument is a request as botocore's client would have sent it."""


class Account:
    """One process' way to S3 with one set of options; for any number of threads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.session import Session  # late: an extra

        quiet("botocore")
        given = dict(options)
        config = {**_CONFIG, **(given.pop("config_kwargs", None) or {})}
        config["retries"] = {"total_max_attempts": 1}
        self._more = dict(given.pop("s3_additional_kwargs", None) or {})
        checksum = self._more.get("ChecksumAlgorithm")
        if checksum not in (None, *_CHECKSUMS):
            known = ", ".join(_CHECKSUMS)
            text = f"ChecksumAlgorithm in s3_additional_kwargs is one of {known}, not {checksum!r}"
            raise UsageError(text)
        if given.pop("requester_pays", False):
            self._more["RequestPayer"] = "requester"
        # s3fs' own names win over client_kwargs
        self._made_of = {"use_ssl": given.pop("use_ssl", True)}
        self._made_of |= given.pop("client_kwargs", None) or {}
        for name, ours in zip((*_SECRETS, "endpoint_url"), _NAMES, strict=True):
            if value := given.pop(ours, None):
                self._made_of[name] = value
        if given.pop("anon", False):
            config["signature_version"] = UNSIGNED
            for name in _SECRETS:
                self._made_of.pop(name, None)
        self._session = _session(given) or Session(**given)
        self._config = Config(**config)
        self._lock = threading.Lock()
        with _unsent():
            self._clients: dict[str, Any] = {"": self._client("")}
        self._patterns: dict[tuple[str, str, str], _Pattern] = {}
        self._regions: dict[str, str] = {}  # of buckets that are elsewhere than assumed
        self.endpoint = str(self._clients[""].meta.endpoint_url)
        host = urlsplit(self.endpoint).hostname or ""
        self.is_providers = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        self.http = HttpClient(self._way())
        with _unsent():
            self._credentials = self._found_credentials()

    def send(self, request: Request) -> Answer:
        """One request; a second one only if the bucket is in another region of Amazon's, whose
        name comes with the refusal of the first."""
        from botocore import httpchecksum

        with _unsent():
            pattern = self._pattern(request.kind, request.place)
            path = pattern.path
            if "Key" in _KINDS[request.kind]:
                path += quote(request.key, safe="/~")
            query = query_of(dict(sorted(request.query.items())))
            sent = {**pattern.headers, **request.headers}
            if pattern.checksum:
                made = getattr(httpchecksum, f"{pattern.checksum.capitalize()}Checksum")()
                sent[f"x-amz-checksum-{pattern.checksum.lower()}"] = made.handle(request.body)
            url = f"{pattern.origin}{path}{f'?{query}' if query else ''}"
            if pattern.region:
                self._sign(pattern.region, pattern.method, url, sent, request.body)
        answer = self.http.send(pattern.method, url, sent, request.body, request.into)
        elsewhere = answer.headers.get("x-amz-bucket-region")
        if answer.status not in (301, 307, 400, 403) or not elsewhere or not self.is_providers:
            return answer
        if elsewhere in (self._regions.get(request.place), self._clients[""].meta.region_name):
            return answer
        self._regions[request.place] = elsewhere
        return self.send(request)

    def _sign(self, region: str, method: str, url: str, sent: dict[str, str], body: bytes) -> None:
        """Add the headers of AWS' signature, version 4."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        if self._credentials is None:
            raise NoCredentialsError
        request = AWSRequest(method=method, url=url, headers=sent, data=body)
        request.context["client_config"] = self._config  # it may leave bodies unsigned
        S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", region).add_auth(request)
        sent.update(request.headers.items())

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
        api, name = client.meta.service_model, client.meta.method_to_api_mapping[kind]
        takes = api.operation_model(name).input_shape.members
        more = {name: value for name, value in self._more.items() if name in takes}
        try:
            getattr(client, kind)(**{**more, "Bucket": bucket, **_KINDS[kind]})
        except _NotToBeSentError as made:
            request = made.args[0]
        pairs = request.headers.items()
        headers = {k: v.decode() if isinstance(v, bytes) else str(v) for k, v in pairs}
        login = headers.get("Authorization", "")
        signed = _SIGNED.match(login)
        if login and signed is None:
            raise UsageError(
                f"s3://{bucket}: requests are to be signed in another way than s3v4; leave "
                "signature_version out of config_kwargs"
            )
        url = urlsplit(request.url)
        origin = f"{url.scheme}://{url.netloc}"
        # over TLS its client sends bodies in chunks with a checksum after the last
        lasting = (each for each in headers.items() if each[1] != "aws-chunked")
        return _Pattern(
            method=request.method,
            origin=origin,
            path=url.path.removesuffix(_KEY if "Key" in _KINDS[kind] else ""),
            headers={k: v for k, v in lasting if not _OF_ONE_REQUEST.fullmatch(k.lower())},
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

        config = self._clients[""].meta.config
        if config.proxies_config:
            raise UsageError("proxies_config in config_kwargs is not supported")
        verify, proxies = self._made_of.get("verify"), config.proxies
        if verify is None:
            verify = self._session.get_config_variable("ca_bundle")
        if verify is None:
            verify = os.environ.get("REQUESTS_CA_BUNDLE", True)
        return Way(
            connect_s=config.connect_timeout,
            read_s=config.read_timeout,
            verify=get_cert_path(verify),
            certificate=config.client_cert,
            proxies=from_environment(self.endpoint) if proxies is None else proxies,
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


@contextlib.contextmanager
def _unsent() -> Iterator[None]:
    """Translate botocore's errors; nothing was sent."""
    from botocore import exceptions as boto

    names = "CredentialRetrieval NoAuthToken NoCredentials PartialCredentials SSO TokenRetrieval"
    try:
        yield
    except tuple(getattr(boto, f"{name}Error") for name in names.split()):
        raise NoCredentialsError from None
    except boto.BotoCoreError as error:
        raise NotMadeError(str(error)) from None


class S3Store(ObjectStore):
    """Requests to one bucket of S3. [ST14]"""

    account = Account
    extra = "s3"
    takes = (
        "s3fs' options: key, secret, token, endpoint_url, profile, anon, client_kwargs, "
        "config_kwargs, s3_additional_kwargs and so on"
    )
    credentials = (
        "Give key, secret and token in storage_options, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY in the environment, or a profile; for a public bucket anon=True."
    )
    address = (
        "Set AWS_DEFAULT_REGION or client_kwargs' region_name to its region, or endpoint_url to "
        "its server."
    )
    pages_are_ordered = True
    removed_at_once = 1000
    gets, deletes = "get_object", "delete_object"

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        super().__init__(scheme, root, options)
        self._refuses_in_versions = False
        if self._bucket.startswith("arn:"):
            advice = "name the bucket, or the alias of the access point, instead of an ARN"
            raise UsageError(f"{self.bucket_url}: {advice}")
        if self._bucket.endswith("--x-s3"):
            raise UnsafeStoreError(
                f"{self.bucket_url} is a directory bucket, whose lists have no order; commits "
                "rely on it. Use another bucket."
            )

    def located(self, request: Request) -> Request:
        return request._replace(place=self._bucket)

    def write(self, key: str, data: bytes, *, is_create: bool = False) -> None:
        headers = {"If-None-Match": "*"} if is_create else {}
        request = Request("put_object", key, {}, headers, data, is_create=is_create)
        version = self._stored(request).headers.get("x-amz-version-id")
        if version in (None, "null") or self._refuses_in_versions or not is_create:
            return
        if self.connection().client.is_providers:
            return
        # Once a process, where the bucket keeps versions and the server is not Amazon's: whether
        # the same create is refused now. [ST12]
        try:
            self._stored(request)
        except TakenError:
            self._refuses_in_versions = True
            return
        except StoreError as error:
            raise StoreUnclearError(f"{error}; the object was created before") from None
        raise UnsafeStoreError(
            f"{self.bucket_url}: versioning is on in this bucket, and this server, as Ceph does, "
            "ignores `If-None-Match` there: later writers replace a commit, and may have replaced "
            f"{self.display_name(key)}. Suspend versioning, or use another bucket. Check what the "
            "table holds before you run anything again."
        )

    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        query |= {"delimiter": delimiter} if delimiter else {}
        if mark:
            query["continuation-token"] = mark
        elif start_from > prefix:
            query["start-after"] = _just_below(start_from)
        return self.ask_for(Request("list_objects_v2", prefix, query), _page)

    def remove_all(self, keys: Sequence[str]) -> None:
        """One request, except for names that its XML cannot hold."""
        plain = [key for key in keys if not NOT_IN_XML.search(key)]
        super().remove_all([key for key in keys if NOT_IN_XML.search(key)])
        if not plain:
            return
        objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in plain)
        body = f"<Delete {_XMLNS}>{objects}<Quiet>true</Quiet></Delete>".encode()
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        headers = {"Content-MD5": base64.b64encode(digest).decode()}
        request = Request("delete_objects", plain[0], {"delete": ""}, headers, body)
        try:
            refused = self.ask_for(request, _not_removed)
        # Ceph requires the right to delete in the whole bucket for a bulk delete
        except StoreDeniedError:
            super().remove_all(plain)
            return
        if refused:
            key, code = refused[0]
            is_denied = all(each == "AccessDenied" for _, each in refused)
            raise (StoreDeniedError if is_denied else StoreError)(
                f"{self.bucket_url}: {len(refused)} of {len(plain)} objects could not be deleted; "
                f"the first is {key!r} ({self.scrub(code)}). "
                "What was deleted stays deleted; trying again is safe."
            )

    def begin_upload(self, key: str) -> str:
        request = Request("create_multipart_upload", key, {"uploads": ""})
        root = "InitiateMultipartUploadResult"
        return self.ask_for(request, lambda answer: text_of(document(answer, root), "UploadId"))

    def send_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        query = {"partNumber": str(number), "uploadId": upload}
        return self._stored(Request("upload_part", key, query, body=data)).headers["etag"]

    def finish_upload(self, key: str, upload: str, parts: Sequence[str], size_bytes: int) -> None:
        part = "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>"
        listed = "".join(part.format(number, escape(tag)) for number, tag in enumerate(parts, 1))
        body = f"<CompleteMultipartUpload {_XMLNS}>{listed}</CompleteMultipartUpload>".encode()
        request = Request("complete_multipart_upload", key, {"uploadId": upload}, body=body)
        root = "CompleteMultipartUploadResult"
        # no such upload: an earlier request completed it, and its response was lost
        with contextlib.suppress(FileNotFoundError):
            if self.ask_for(request, lambda answer: document(answer, root).findtext("ETag")):
                return
        why = "is not there: the store has forgotten this upload"
        with contextlib.suppress(FileNotFoundError):
            _, found = self.tail(key)
            if found == size_bytes:
                return
            why = f"has {found} bytes where {size_bytes} were written"
        raise StoreError(f"{self.display_name(key)} {why}. Run the task again.")

    def abort_upload(self, key: str, upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.ask(Request("abort_multipart_upload", key, {"uploadId": upload}))

    def unfinished(self) -> Iterator[Unfinished]:
        """Uploads neither finished nor aborted, by one request for each 1,000; they are billed
        until they are aborted, and no listing of objects shows them. [GC9]"""
        # without "encoding-type", which Ceph follows here, and does not say in its response
        query = {"uploads": "", "prefix": self._prefix}
        while True:
            request = Request("list_multipart_uploads", self._prefix, query)
            try:
                uploads, following = self.ask_for(request, _page_of_uploads)
            except NotOfferedError:
                return
            for upload in uploads:
                if upload.name.startswith(self._prefix):
                    yield msgspec.structs.replace(upload, name=upload.name[len(self._prefix) :])
            if following.items() <= query.items():
                return
            query = query | following

    def _stored(self, request: Request) -> Answer:
        """A response without an ETag comes from another service, such as a login page: nothing may
        have been stored."""

        def read(answer: Answer) -> Answer:
            if not answer.headers.get("etag"):
                raise ValueError("it is not that of an S3 store: it names no ETag")
            return answer

        return self.ask_for(request, read)


def _just_below(name: str) -> str:
    """A text below `name` with few others between them; a listing that starts after it starts at
    `name` or slightly before."""
    last = ord(name[-1])
    if last <= 1:
        return name[:-1]
    return name[:-1] + ("\ud7ff" if last == 0xE000 else chr(last - 1))


_XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def _decoder(page: ElementTree.Element) -> Callable[[str], str]:
    """What makes names of those in a list: some servers ignore the wish for percent-encoding."""
    return _decoded if page.findtext("EncodingType") == "url" else str


def _decoded(name: str) -> str:
    """Of most names slashes are encoded and nothing else, and each name of a list is decoded."""
    name = name.replace("%2F", "/")
    return unquote_plus(name) if "%" in name or "+" in name else name


def _page(answer: Answer) -> Page:
    page = document(answer, "ListBucketResult")
    decoded = _decoder(page)
    is_last = text_of(page, "IsTruncated") != "true"
    return Page(
        objects=[
            ObjectInfo(
                name=decoded(text_of(listed, "Key")),
                size_bytes=int(text_of(listed, "Size")),
                modified=_time(text_of(listed, "LastModified")),
                etag=listed.findtext("ETag", ""),
            )
            for listed in page.iterfind("Contents")
        ],
        mark="" if is_last else text_of(page, "NextContinuationToken"),
        folders=[decoded(text_of(each, "Prefix")) for each in page.iterfind("CommonPrefixes")],
    )


def _page_of_uploads(answer: Answer) -> tuple[list[Unfinished], dict[str, str]]:
    """The uploads, and what asks for the next page; nothing after the last."""
    page = document(answer, "ListMultipartUploadsResult")
    decoded = _decoder(page)
    uploads = [
        Unfinished(
            name=decoded(text_of(upload, "Key")),
            upload=text_of(upload, "UploadId"),
            started=_time(text_of(upload, "Initiated")),
        )
        for upload in page.iterfind("Upload")
    ]
    if page.findtext("IsTruncated") != "true":
        return uploads, {}
    return uploads, {
        "key-marker": decoded(page.findtext("NextKeyMarker", "")),
        "upload-id-marker": page.findtext("NextUploadIdMarker", ""),
    }


def _not_removed(answer: Answer) -> list[tuple[str, str]]:
    """The refusals of a bulk delete: names and codes."""
    errors = document(answer, "DeleteResult").iterfind("Error")
    refused = [(each.findtext("Key", ""), each.findtext("Code", "")) for each in errors]
    return [each for each in refused if each[1] != "NoSuchKey"]


def _time(text: str) -> float:
    """Of an object in a list, by the one form that lists have."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
