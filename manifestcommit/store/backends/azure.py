"""Azure Blob Storage and Data Lake Gen2: one PUT with `If-None-Match: *` per create. [ST10] [ST13]

adlfs finds credentials and endpoints as its users expect, and keeps the connections. The requests
go through the SDK's client inside it, because adlfs checks before it acts, splits names at
`?versionid=`, and caches listings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ...errors import StoreError, UsageError
from ..base import ObjectInfo
from ..options import StorageOptions, public_endpoint
from .backend import (
    CONNECT_S,
    NOT_IN_XML,
    READ_S,
    SENDING_S,
    Backend,
    ClientFailedError,
    Upload,
    wait,
)
from .client_internals import azure_transport, send_once
from .retry import TransientError

_PAGE = 5000
_HOST = re.compile(r"([^.]+)((?:\.[^.]+)*)\.(?:dfs|blob)\.(.+)")


class AzureBackend(Backend):
    """Requests to one container, each sent once. [ST14]"""

    name = "abfs://"
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
    busy = Backend.busy - {409}
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
        service = self.connection().client.service_client
        self._endpoint = public_endpoint(str(service.primary_endpoint))
        usual = _HOST.fullmatch(urlsplit(self._endpoint).hostname or "")
        # An emulator, or a custom domain: it comes from storage_options, as the endpoints of S3 do,
        # and is not part of the URL.
        self._url = f"abfs://{self._container}" + (
            f"@{usual[1]}{usual[2]}.dfs.{usual[3]}" if usual else ""
        )
        if self._place and self._place.partition(".")[0] != service.account_name:
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

    tells_size = False

    def connect(self) -> Any:
        from adlfs import AzureBlobFileSystem  # late: an extra

        given = self.client_options()
        if found := _HOST.fullmatch(self._place):
            given.setdefault("account_name", found[1])
            given.setdefault("account_host", f"{found[1]}{found[2]}.blob.{found[3]}")
        fs = AzureBlobFileSystem(**given)
        wait(fs, _repeat_nothing(fs.service_client))
        return fs

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
        length = None if end is None else end - (start or 0)
        offset = start or (0 if length is not None else None)

        async def download(blob: Any) -> bytes:
            stream = await blob.download_blob(
                offset=offset, length=length, max_concurrency=1, **self._sent_once()
            )
            return bytes(await stream.readall())

        return bytes(self._blob(key, download)), 0

    def tail(self, key: str) -> tuple[bytes, int]:
        """Only the length: Azure has no ranges that count from the end."""
        found = self._blob(key, lambda blob: blob.get_blob_properties(**self._sent_once()))
        return b"", int(found.size)

    def write(self, key: str, data: bytes) -> None:
        self._put(key, data, overwrite=True)

    def create(self, key: str, data: bytes) -> None:
        self._put(key, data, overwrite=False)

    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        """Unordered: Azure does not promise code-point order, and the folders of a hierarchical
        namespace have an order of their own."""

        async def ask(container: Any) -> tuple[list[ObjectInfo], str]:
            listing = container.list_blobs(
                name_starts_with=prefix,
                include=["metadata"],
                results_per_page=_PAGE,
                **self._sent_once(),
            )
            pages = listing.by_page(continuation_token=mark or None)
            found = [_info(blob) async for blob in await anext(pages) if not _is_folder(blob)]
            return found, str(pages.continuation_token or "")

        result: tuple[list[ObjectInfo], str] = self._ask(prefix, ask)
        return result

    def remove(self, key: str) -> None:
        self._blob(key, lambda blob: blob.delete_blob(**self._sent_once()))

    def upload(self, key: str) -> Upload:
        return _Blocks(self, key)

    def stage(self, key: str, block: str, data: bytes) -> None:
        self._blob(
            key, lambda blob: blob.stage_block(block, data, length=len(data), **self._sent_once())
        )

    def commit(self, key: str, blocks: Sequence[str]) -> None:
        from azure.storage.blob import BlobBlock

        self._blob(
            key,
            lambda blob: blob.commit_block_list(
                [BlobBlock(block_id=block) for block in blocks], **self._sent_once()
            ),
        )

    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        from azure.core import exceptions as azure

        if isinstance(error, azure.HttpResponseError) and error.status_code:
            headers = getattr(error.response, "headers", {})
            return self._answer(
                int(error.status_code),
                str(headers.get("x-ms-error-code", error.status_code)),
                shown,
            ), True
        if isinstance(error, azure.ClientAuthenticationError):
            return self.no_credentials(shown), False
        inner = getattr(error, "inner_exception", None) or error
        if _never_left(inner):
            return TransientError(
                f"{shown}: no connection to {self._endpoint}; check the account and the network",
                sent=False,
            ), False
        if isinstance(error, azure.AzureError | OSError | TimeoutError | EOFError | RuntimeError):
            return TransientError(
                f"{shown}: the connection to {self._endpoint} failed ({type(inner).__name__})",
                sent=True,
            ), False
        return ClientFailedError(
            f"{shown}: the client refuses the request ({type(error).__name__}: {error})"
        ), False

    def _answer(self, status: int, code: str, shown: str) -> Exception:
        if code in ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"):
            return StoreError(
                f"{shown}: there is no container {self._container} ({code}); check the name "
                "and the account, or create it"
            )
        return self.answered(status, code, shown)

    def _sent_once(self) -> dict[str, Any]:
        """The arguments of every request: the SDK repeats nothing, and its timeouts are short.
        [ST14]"""
        return {
            "retry_total": 0,
            "raw_response_hook": lambda answer: self.tell_time(
                answer.http_response.headers.get("Date")
            ),
            "connection_timeout": self._options.get("connection_timeout", CONNECT_S),
            "read_timeout": self._options.get("read_timeout", READ_S),
        }

    def _put(self, key: str, data: bytes, *, overwrite: bool) -> None:
        self._blob(
            key,
            lambda blob: blob.upload_blob(
                data, length=len(data), overwrite=overwrite, max_concurrency=1, **self._sent_once()
            ),
        )

    def _blob(self, key: str, work: Any) -> Any:
        if "\\" in key:
            raise StoreError(
                f"{self.display_name(key)}: Azure takes a backslash for a slash, so that "
                "this would become another name"
            )
        if NOT_IN_XML.search(key):
            raise StoreError(
                f"{self.display_name(key)}: Azure could not list a name with this control character"
            )
        return self._ask(key, lambda container: work(container.get_blob_client(key)))

    def _ask(self, key: str, work: Any) -> Any:
        return self.once(
            key,
            lambda fs: wait(
                fs, work(fs.service_client.get_container_client(self._container)), SENDING_S
            ),
        )


class _Blocks:
    """Blocks that are invisible until their list is committed; Azure removes uncommitted ones after
    a week."""

    at_once = 1

    def __init__(self, backend: AzureBackend, key: str) -> None:
        self._backend, self._key = backend, key
        self._blocks: list[str] = []

    def send(self, number: int, data: bytes) -> None:
        block = f"{number:06}"
        self._backend.persist(lambda: self._backend.stage(self._key, block, data))
        self._blocks.append(block)

    def finish(self, number: int, data: bytes) -> None:
        self.send(number, data)
        self._backend.persist(lambda: self._backend.commit(self._key, self._blocks))

    def discard(self) -> None:
        self._blocks.clear()


async def _repeat_nothing(service: Any) -> None:
    """aiohttp repeats a PUT when the connection ends without a response: a create that succeeded
    would look like a taken name. [ST5]"""
    transport = azure_transport(service)
    await transport.open()
    send_once(transport.session)


def _never_left(error: Any) -> bool:
    """The SDK makes no reliable distinction: a request that it calls failed may have been carried
    out."""
    import aiohttp

    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


def _info(blob: Any) -> ObjectInfo:
    return ObjectInfo(name=blob.name, size_bytes=blob.size, modified=blob.last_modified.timestamp())


def _is_folder(blob: Any) -> bool:
    """A hierarchical namespace lists its folders as blobs."""
    return any(
        name.lower() == "hdi_isfolder" and value == "true"
        for name, value in (blob.metadata or {}).items()
    )
