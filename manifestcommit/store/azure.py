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
from .base import ObjectInfo, StorageOptions
from .http import CONNECT_S, READ_S, Answer, HttpClient, Way, from_environment
from .object_store import (
    NOT_IN_XML,
    NoCredentialsError,
    ObjectStore,
    Page,
    Request,
    document,
    none_left,
    query_of,
    text_of,
)

_PAGE = 5000
_VERSION = "2021-08-06"  # of the service's interface
_HOST = re.compile(r"([^.]+)((?:\.[^.]+)*)\.(?:dfs|blob)\.(.+)")
_SCOPE = "https://storage.azure.com/.default"
_RENEWED_S = 300.0  # before a token ends
_SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type"),
    *("date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_FOUND = "account_key account_name connection_string sas_token client_id client_secret tenant_id"
_WHOLE = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}


class Account:
    """One process' way to one account with one set of options; for any number of threads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = dict(options)
        if given.get("location_mode") == "primary":
            del given["location_mode"]  # commits need it
        connect_s = float(given.pop("connection_timeout", None) or CONNECT_S)
        read_s = float(given.pop("read_timeout", None) or READ_S)
        found = {
            name: given.pop(name, None) or os.environ.get(f"AZURE_STORAGE_{name.upper()}")
            for name in _FOUND.split()
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
            self._credential = _credential(credential, found, anon=anon)
            if self._credential is not None:
                self._key = self._sas = None
        none_left("abfs", given)
        self.usual = _HOST.fullmatch(urlsplit(self.endpoint).hostname or "")
        self.is_providers = self.usual is not None
        self.http = HttpClient(Way(connect_s, read_s, proxies=from_environment(self.endpoint)))
        self._token: Any = None
        self._lock = threading.Lock()

    def _read_connection_string(self, text: str) -> None:
        if not all("=" in field for field in filter(None, text.split(";"))):
            raise UsageError("connection_string has a part that is no NAME=VALUE")
        fields = _fields(text)
        name, suffix = fields.get("accountname"), fields.get("endpointsuffix", "core.windows.net")
        scheme = fields.get("defaultendpointsprotocol", "https")
        endpoint = fields.get("blobendpoint") or (name and f"{scheme}://{name}.blob.{suffix}")
        if not endpoint:
            raise UsageError("connection_string names no AccountName and no BlobEndpoint")
        self.endpoint = endpoint.rstrip("/")
        self.name = name or (urlsplit(endpoint).hostname or "").partition(".")[0]
        self._key, self._sas = fields.get("accountkey"), fields.get("sharedaccesssignature")

    def send(self, request: Request) -> Answer:
        url = f"{self.endpoint}/{request.place}"
        asked = [query_of(request.query)] if request.query else []
        sent = {**request.headers, "x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True)}
        if self._credential is not None:
            sent["Authorization"] = f"Bearer {self._renewed()}"
        elif self._key:
            sent["Authorization"] = self._signed(request, url, sent)
        elif self._sas:
            asked.append(self._sas.lstrip("?"))
        url += f"?{'&'.join(asked)}" if asked else ""
        return self.http.send(request.kind, url, sent, request.body, request.into)

    def _signed(self, request: Request, url: str, headers: Mapping[str, str]) -> str:
        """By the account's key, as Azure documents it."""
        lower = {name.lower(): value for name, value in headers.items()}
        if request.body:
            lower["content-length"] = str(len(request.body))
        own = sorted(name for name in lower if name.startswith("x-ms-"))
        lines = [
            request.kind,
            *(lower.get(name, "") for name in _SIGNED),
            *(f"{name}:{lower[name]}" for name in own),
            f"/{self.name}{urlsplit(url).path}",
            *(f"{name}:{value}" for name, value in sorted(request.query.items())),
        ]
        try:
            key = base64.b64decode(self._key or "", validate=True)
        except binascii.Error:
            raise NoCredentialsError from None
        digest = hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()
        return f"SharedKey {self.name}:{base64.b64encode(digest).decode()}"

    def _renewed(self) -> str:
        with self._lock:
            if self._token is None or self._token.expires_on - time.time() < _RENEWED_S:
                try:
                    self._token = self._credential.get_token(_SCOPE)
                except Exception as error:
                    raise NoCredentialsError from error
            return str(self._token.token)


def _fields(connection_string: str) -> dict[str, str]:
    """By their names in lower case."""
    parts = (part.partition("=") for part in connection_string.split(";"))
    return {name.lower(): value for name, _, value in parts}


def _credential(credential: Any, found: Mapping[str, Any], *, anon: bool) -> Any:
    """What gives tokens; None: there is another login, or none is wanted."""
    if credential is not None:
        get_token, kind = getattr(credential, "get_token", None), type(credential)
        if get_token is None or inspect.iscoroutinefunction(get_token):
            raise UsageError(
                "credential in storage_options has a get_token that is no coroutine, as those of "
                "azure.identity have, not of azure.identity.aio; this one is a "
                f"{kind.__module__}.{kind.__qualname__}"
            )
        return credential
    if found["account_key"] or found["sas_token"]:
        return None
    if found["client_id"]:
        from azure.identity import ClientSecretCredential

        login = ("tenant_id", "client_id", "client_secret")
        return ClientSecretCredential(*(found[name] for name in login))
    if anon:
        return None
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


class AzureStore(ObjectStore):
    """Requests to one container of Azure. [ST14]"""

    account = Account
    noun, missing = "container", "account"
    extra = "azure"
    takes = (
        "adlfs' options: account_name, account_key, sas_token, connection_string, client_id, "
        "client_secret, tenant_id and so on"
    )
    credentials = (
        "Give account_key, sas_token, connection_string or client_id, client_secret and tenant_id "
        "in storage_options, or the same in the environment as AZURE_STORAGE_ACCOUNT_KEY and so "
        "on; for a public container anon=True."
    )
    address = (
        "Check account_name, account_host and connection_string in storage_options, and the same "
        "and the proxies in the environment."
    )

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        """root: container, or container@account.dfs.core.windows.net; and the prefix."""
        super().__init__(scheme, root, options)
        place = root.partition("/")[0]
        if not self._bucket or (self._host and not _HOST.fullmatch(self._host)):
            raise UsageError(
                f"abfs://{place} names no container of an account: write "
                "abfs://container@account.dfs.core.windows.net/folder, "
                "or abfs://container/folder and account_name in storage_options"
            )
        account = self.connection().client
        if self._host and self._host.partition(".")[0] != account.name:
            raise UsageError(
                f"abfs://{place} names another account than storage_options or the environment, "
                f"which lead to {self.where}: name one account only"
            )

    @property
    def bucket_url(self) -> str:
        """Without an emulator or a custom domain, which come from storage_options, as the endpoints
        of S3 do. [ST4]"""
        usual = self.connection().client.usual
        return super().bucket_url + (f"@{usual[1]}{usual[2]}.dfs.{usual[3]}" if usual else "")

    def given(self) -> dict[str, Any]:
        given = super().given()
        if found := _HOST.fullmatch(self._host):
            given.setdefault("account_name", found[1])
            given.setdefault("account_host", f"{found[1]}{found[2]}.blob.{found[3]}")
        return given

    def scrub(self, text: str) -> str:
        fields = _fields(str(self._options.get("connection_string") or ""))
        secrets = [fields.get("accountkey"), fields.get("sharedaccesssignature")]
        places = [value for name, value in fields.items() if name.endswith("endpoint")]
        return StorageOptions({"secrets": secrets, "endpoint": places}).scrub(super().scrub(text))

    def located(self, request: Request) -> Request:
        container, key = quote(self._bucket), request.key
        if request.place:
            return request._replace(place=container)
        why = "could not list a name with this control character"
        if is_slashed := "\\" in key:
            why = "takes a backslash for a slash, so that this would become another name"
        if is_slashed or NOT_IN_XML.search(key):
            raise StoreError(f"{self.display_name(key)}: Azure {why}")
        return request._replace(place=f"{container}/{quote(key, safe='/~')}")

    def tail(self, key: str) -> tuple[bytes, int]:
        """Only the length: Azure has no ranges that count from the end."""
        request = Request("HEAD", key)
        return b"", self.ask_for(request, lambda answer: int(answer.headers["content-length"]))

    def write(self, key: str, data: bytes, *, is_create: bool = False) -> None:
        headers = _WHOLE | ({"If-None-Match": "*"} if is_create else {})
        self.ask(Request("PUT", key, {}, headers, data, is_create=is_create))

    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        """Unordered: Azure does not promise code-point order, and the folders of a hierarchical
        namespace have an order of their own."""
        query = {"restype": "container", "comp": "list", "maxresults": str(_PAGE), "prefix": prefix}
        query |= {"delimiter": delimiter} if delimiter else {"include": "metadata"}
        query |= {"marker": mark} if mark else {}
        return self.ask_for(Request("GET", prefix, query, place="/"), _page)

    # Blocks are invisible until their list is committed; Azure removes uncommitted ones after a
    # week.

    def send_part(self, key: str, upload: None, number: int, data: bytes) -> str:
        block = base64.b64encode(b"%06d" % number).decode()
        self.ask(Request("PUT", key, {"comp": "block", "blockid": block}, body=data))
        return block

    def finish_upload(self, key: str, upload: None, parts: Sequence[str], size_bytes: int) -> None:
        named = "".join(f"<Latest>{block}</Latest>" for block in parts)
        body = f"<BlockList>{named}</BlockList>".encode()
        self.ask(Request("PUT", key, {"comp": "blocklist"}, body=body))


def _page(answer: Answer) -> Page:
    page = document(answer, "EnumerationResults")
    return Page(
        objects=[_info(blob) for blob in page.iterfind("Blobs/Blob") if not _is_folder(blob)],
        mark=text_of(page, "NextMarker"),
        folders=[_name(each) for each in page.iterfind("Blobs/BlobPrefix")],
    )


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
    said = {each.tag.lower(): each.text for each in blob.iterfind("Metadata/*")}
    return said.get("hdi_isfolder") == "true"
