"""Azure Blob Storage and Data Lake Gen2: one PUT with `If-None-Match: *` per create. [ST10] [ST13]

The options are those of adlfs. Requests are signed by the account's key, carry a shared access
signature, or a token that azure-identity renews.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from ..errors import StoreError, UsageError
from .arrow_filesystem import span, whole_size
from .backend import NOT_IN_XML, Upload
from .base import ObjectInfo
from .http import (
    CONNECT_S,
    OF_FILES,
    READ_S,
    Answer,
    HttpBackend,
    HttpClient,
    Way,
    from_environment,
    text_of,
)
from .options import StorageOptions, public_endpoint

_PAGE = 5000
_VERSION = "2021-08-06"  # of the service's interface
_HOST = re.compile(r"([^.]+)((?:\.[^.]+)*)\.(?:dfs|blob)\.(.+)")
_SCOPE = "https://storage.azure.com/.default"
_RENEWED_S = 300.0  # before a token ends
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
_REFUSED = ("request_session", "timeout")
_FOUND = (
    "account_key",
    "account_name",
    "client_id",
    "client_secret",
    "connection_string",
    "sas_token",
    "tenant_id",
)


class _NoCredentialsError(Exception):
    """None were found, or the service that gives tokens refuses."""


class Account:
    """One process' way to one account with one set of options; for any number of threads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {name: value for name, value in options.items() if name not in OF_FILES}
        if refused := [name for name in _REFUSED if given.get(name) is not None]:
            raise UsageError(f"abfs:// takes no option {', '.join(refused)}")
        if given.pop("location_mode", "primary") != "primary":
            raise UsageError("location_mode is 'primary': commits need the primary location")
        connect_s = float(given.pop("connection_timeout", None) or CONNECT_S)
        read_s = float(given.pop("read_timeout", None) or READ_S)
        found = {
            name: given.pop(name, None) or os.environ.get(f"AZURE_STORAGE_{name.upper()}")
            for name in _FOUND
        }
        anon, credential = given.pop("anon", None), given.pop("credential", None)
        if anon is None:
            named = os.environ.get("AZURE_STORAGE_ANON", "false").lower()
            anon = named not in ("false", "0", "f", "")
        host = given.pop("account_host", None)
        self._key = self._sas = None
        self._credential: Any = None
        if found["connection_string"]:
            self._read_connection_string(found["connection_string"])
        elif not found["account_name"]:
            raise UsageError("give account_name, or connection_string")
        else:
            self.name = found["account_name"]
            self.endpoint = f"https://{host or f'{self.name}.blob.core.windows.net'}"
            self._key, self._sas = found["account_key"], found["sas_token"]
            self._credential = _credential(credential, found, given, anon=anon)
            if self._credential is not None:
                self._key = self._sas = None
            given = {}
        if given:
            raise UsageError(f"abfs:// takes no option {', '.join(sorted(map(str, given)))}")
        self.http = HttpClient(Way(connect_s, read_s, proxies=from_environment(self.endpoint)))
        self._token: Any = None
        self._lock = threading.Lock()

    def _read_connection_string(self, text: str) -> None:
        fields = {}
        for field in filter(None, text.split(";")):
            key, found, value = field.partition("=")
            if not found:
                raise UsageError("connection_string has a part that is no NAME=VALUE")
            fields[key.lower()] = value
        name, suffix = fields.get("accountname"), fields.get("endpointsuffix", "core.windows.net")
        scheme = fields.get("defaultendpointsprotocol", "https")
        endpoint = fields.get("blobendpoint") or (name and f"{scheme}://{name}.blob.{suffix}")
        if not endpoint:
            raise UsageError("connection_string names no AccountName and no BlobEndpoint")
        self.endpoint = endpoint.rstrip("/")
        self.name = name or (urlsplit(endpoint).hostname or "").partition(".")[0]
        self._key, self._sas = fields.get("accountkey"), fields.get("sharedaccesssignature")

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        """path: below the account, percent-encoded."""
        url = f"{self.endpoint}/{path}"
        asked = [f"{name}={quote(value, safe='~')}" for name, value in query.items()]
        sent = {**headers, "x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True)}
        if method == "PUT":
            sent["Content-Length"] = str(len(body))
        if self._credential is not None:
            sent["Authorization"] = f"Bearer {self._renewed()}"
        elif self._key:
            sent["Authorization"] = self._signed(method, url, query, sent)
        elif self._sas:
            asked.append(self._sas.lstrip("?"))
        return self.http.send(method, url + (f"?{'&'.join(asked)}" if asked else ""), sent, body)

    def _signed(
        self, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> str:
        """By the account's key, as Azure documents it."""
        lower = {name.lower(): value for name, value in headers.items()}
        if lower.get("content-length") == "0":
            del lower["content-length"]
        own = sorted(name for name in lower if name.startswith("x-ms-"))
        lines = [
            method,
            *(lower.get(name, "") for name in _SIGNED),
            *(f"{name}:{lower[name]}" for name in own),
            f"/{self.name}{urlsplit(url).path}",
            *(f"{name}:{value}" for name, value in sorted(query.items())),
        ]
        try:
            key = base64.b64decode(self._key or "", validate=True)
        except binascii.Error:
            raise _NoCredentialsError from None
        digest = hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()
        return f"SharedKey {self.name}:{base64.b64encode(digest).decode()}"

    def _renewed(self) -> str:
        with self._lock:
            if self._token is None or self._token.expires_on - time.time() < _RENEWED_S:
                try:
                    self._token = self._credential.get_token(_SCOPE)
                except Exception as error:
                    raise _NoCredentialsError(type(error).__name__) from error
            return str(self._token.token)


def _credential(
    credential: Any, found: Mapping[str, Any], more: dict[str, Any], *, anon: bool
) -> Any:
    """What gives tokens; None: there is another login, or none is wanted."""
    if credential is not None:
        if not hasattr(credential, "get_token") or inspect.iscoroutinefunction(
            credential.get_token
        ):
            raise UsageError(
                "credential in storage_options has a get_token that is no coroutine, as those of "
                f"azure.identity have, not of azure.identity.aio; this one is a "
                f"{type(credential).__module__}.{type(credential).__qualname__}"
            )
        return credential
    if found["account_key"] or found["sas_token"]:
        return None
    if found["client_id"]:
        from azure.identity import ClientSecretCredential

        return ClientSecretCredential(
            found["tenant_id"], found["client_id"], found["client_secret"]
        )
    if anon:
        return None
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(**more)


class AzureBackend(HttpBackend):
    """Requests to one container, each sent once. [ST14]"""

    name = "abfs://"
    sections = ("abfs", "az", "abfss")
    extra = "azure"
    takes = (
        "adlfs' options: account_name, account_key, sas_token, connection_string, client_id, "
        "client_secret, tenant_id and so on"
    )
    credentials = (
        "Give account_key, sas_token, connection_string or client_id, client_secret and "
        "tenant_id in storage_options, or the same in the "
        "environment as AZURE_STORAGE_ACCOUNT_KEY and so on; for a public container anon=True."
    )
    busy = HttpBackend.busy - {409}
    taken_codes = frozenset({"BlobAlreadyExists", "UnauthorizedBlobOverwrite", "ConditionNotMet"})
    bad_credentials = frozenset(
        {"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"}
    )

    def __init__(self, place: str, options: StorageOptions) -> None:
        """place: container, or container@account.dfs.core.windows.net."""
        super().__init__(options, place.partition("@")[2])
        self._container = place.partition("@")[0]
        if not self._container or (self._place and not _HOST.fullmatch(self._place)):
            raise UsageError(
                f"abfs://{place} names no container of an account: write "
                "abfs://container@account.dfs.core.windows.net/folder, "
                "or abfs://container/folder and account_name in storage_options"
            )
        account = self.connection().client
        self._endpoint = public_endpoint(account.endpoint)
        usual = _HOST.fullmatch(urlsplit(self._endpoint).hostname or "")
        # An emulator, or a custom domain: it comes from storage_options, as the endpoints of S3 do,
        # and is not part of the URL.
        self._url = f"abfs://{self._container}" + (
            f"@{usual[1]}{usual[2]}.dfs.{usual[3]}" if usual else ""
        )
        if self._place and self._place.partition(".")[0] != account.name:
            raise UsageError(
                f"abfs://{place} names another account than storage_options or the environment, "
                f"which lead to {self._endpoint}: name one account only"
            )

    @property
    def url(self) -> str:
        return self._url

    @property
    def identity(self) -> str:
        return self._url if "@" in self._url else f"{self._url} at {self._endpoint}"

    @property
    def where(self) -> str:
        return self._endpoint

    def connect(self) -> Any:
        given = self.given()
        if found := _HOST.fullmatch(self._place):
            given.setdefault("account_name", found[1])
            given.setdefault("account_host", f"{found[1]}{found[2]}.blob.{found[3]}")
        return Account(given)

    def scrub(self, text: str) -> str:
        fields = [
            field.partition("=")
            for field in str(self._options.get("connection_string") or "").split(";")
        ]
        secrets = [
            value for name, _, value in fields if name in ("AccountKey", "SharedAccessSignature")
        ]
        places = [value for name, _, value in fields if name.endswith("Endpoint")]
        return StorageOptions({"secrets": secrets, "endpoint": places}).scrub(super().scrub(text))

    def read(self, key: str, start: int | None, end: int | None) -> tuple[bytes, int]:
        answer = self._ask("GET", key, headers=span(start, end))
        return answer.body, whole_size(answer.headers.get("Content-Range"), answer.body)

    def tail(self, key: str) -> tuple[bytes, int]:
        """Only the length: Azure has no ranges that count from the end."""
        return b"", int(self._ask("HEAD", key).headers["Content-Length"])

    def write(self, key: str, data: bytes) -> None:
        self._ask("PUT", key, headers=_WHOLE, body=data)

    def create(self, key: str, data: bytes) -> None:
        self._ask("PUT", key, headers={**_WHOLE, "If-None-Match": "*"}, body=data)

    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        """Unordered: Azure does not promise code-point order, and the folders of a hierarchical
        namespace have an order of their own."""
        page = self._page(prefix, mark, {"include": "metadata"})
        try:
            blobs = page.iterfind("Blobs/Blob")
            return [_info(blob) for blob in blobs if not _is_folder(blob)], text_of(
                page, "NextMarker"
            )
        except (KeyError, ValueError) as error:
            raise self.malformed(prefix, error) from None

    def folder_page(self, prefix: str, mark: str) -> tuple[Sequence[str], str]:
        page = self._page(prefix, mark, {"delimiter": "/"})
        found = [_name(each) for each in page.iterfind("Blobs/BlobPrefix")]
        return found, text_of(page, "NextMarker")

    def _page(self, prefix: str, mark: str, more: Mapping[str, str]) -> ElementTree.Element:
        query = {
            "restype": "container",
            "comp": "list",
            "maxresults": str(_PAGE),
            "prefix": prefix,
            **more,
            **({"marker": mark} if mark else {}),
        }
        target = quote(self._container)
        return self.once(
            prefix,
            lambda account: self.document(
                self.told(account.send("GET", target, query, {}, b"")), prefix, "EnumerationResults"
            ),
        )

    def remove(self, key: str) -> None:
        self._ask("DELETE", key)

    def upload(self, key: str) -> Upload:
        return _Blocks(self, key)

    def stage(self, key: str, block: str, data: bytes) -> None:
        self._ask("PUT", key, {"comp": "block", "blockid": block}, body=data)

    def commit(self, key: str, blocks: Sequence[str]) -> None:
        named = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        body = f"<BlockList>{named}</BlockList>".encode()
        self._ask("PUT", key, {"comp": "blocklist"}, body=body)

    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        if isinstance(error, _NoCredentialsError):
            return self.no_credentials(shown), False
        return super().translate(error, shown)

    def refused(self, answer: Answer, shown: str) -> Exception:
        status = answer.status
        code = answer.headers.get("x-ms-error-code", str(status))
        if code in ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"):
            return StoreError(
                f"{shown}: there is no container {self._container} ({code}); check the name "
                "and the account, or create it"
            )
        return self.answered(status, code, shown)

    def _ask(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] = {},  # never mutated
        *,
        headers: Mapping[str, str] = {},
        body: bytes = b"",
    ) -> Answer:
        """One request about an object."""
        if "\\" in key:
            raise StoreError(
                f"{self.display_name(key)}: Azure takes a backslash for a slash, so that "
                "this would become another name"
            )
        if NOT_IN_XML.search(key):
            raise StoreError(
                f"{self.display_name(key)}: Azure could not list a name with this control character"
            )
        path = f"{quote(self._container)}/{quote(key, safe='/~')}"
        return self.once(
            key, lambda account: self.told(account.send(method, path, query, headers, body))
        )


_WHOLE = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}


class _Blocks:
    """Blocks that are invisible until their list is committed; Azure removes uncommitted ones after
    a week."""

    at_once = 4

    def __init__(self, backend: AzureBackend, key: str) -> None:
        self._backend, self._key = backend, key

    def send(self, number: int, data: bytes) -> None:
        self._backend.persist(lambda: self._backend.stage(self._key, _block(number), data))

    def finish(self, number: int, data: bytes) -> None:
        self.send(number, data)
        blocks = [_block(each) for each in range(1, number + 1)]
        self._backend.persist(lambda: self._backend.commit(self._key, blocks))

    def discard(self) -> None:
        """Nothing is visible."""


def _block(number: int) -> str:
    return base64.b64encode(b"%06d" % number).decode()


def _info(blob: ElementTree.Element) -> ObjectInfo:
    modified = parsedate_to_datetime(text_of(blob, "Properties/Last-Modified"))
    return ObjectInfo(
        name=_name(blob),
        size_bytes=int(text_of(blob, "Properties/Content-Length")),
        modified=modified.timestamp(),
        etag=blob.findtext("Properties/Etag", ""),
    )


def _name(listed: ElementTree.Element) -> str:
    name = text_of(listed, "Name")
    return unquote(name) if listed.find("Name[@Encoded='true']") is not None else name


def _is_folder(blob: ElementTree.Element) -> bool:
    """A hierarchical namespace lists its folders as blobs."""
    return any(
        each.tag.lower() == "hdi_isfolder" and each.text == "true"
        for each in blob.iterfind("Metadata/*")
    )
