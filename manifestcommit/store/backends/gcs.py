"""Google Cloud Storage: one upload with `ifGenerationMatch=0` per create. [ST10] [ST13]

gcsfs finds credentials as its users expect, and keeps the connections. The requests are made here,
by the JSON API, because gcsfs sends each up to six times (a create whose response was lost returns
as a conflict), caches listings, and frames an upload by a boundary that may occur in its bytes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from ...errors import StoreError, UsageError
from ..base import ObjectInfo
from ..options import StorageOptions, public_endpoint
from .arrow_filesystem import TAIL, span, whole_size
from .backend import CONNECT_S, READ_S, SENDING_S, Backend, ClientFailedError, Upload, wait, within
from .client_internals import gcs_headers, gcs_params, open_gcs_session
from .retry import TransientError

_OWN_HOST = "https://storage.googleapis.com"
_LOGIN_S = 6.0  # two attempts of google-auth to reach a metadata server that does not answer
_LISTED = "items(name,size,timeCreated),nextPageToken"


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class _RefusalError(Exception):
    """A response with an unexpected status."""

    def __init__(self, answer: _Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class GcsBackend(Backend):
    """Requests to one bucket, each sent once. [ST14]"""

    name = "gs://"
    extra = "gcs"
    takes = "gcsfs' options: token, project, access, endpoint_url, requester_pays and so on"
    credentials = (
        "Give token in storage_options, GOOGLE_APPLICATION_CREDENTIALS in the environment, or log "
        "in by gcloud; for a public bucket token='anon'."
    )
    busy_codes = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
    pages_are_ordered = True

    def __init__(self, bucket: str, options: StorageOptions) -> None:
        super().__init__(options, "")
        self._bucket = bucket
        endpoint = str(self.connection().client.base).removesuffix("storage/v1/")
        self._endpoint = public_endpoint(endpoint)
        self._objects = f"{endpoint}storage/v1/b/{_quoted(bucket)}/o"
        self._uploads = f"{endpoint}upload/storage/v1/b/{_quoted(bucket)}/o"

    @property
    def url(self) -> str:
        return f"gs://{self._bucket}"

    @property
    def identity(self) -> str:
        return self.url + ("" if self._endpoint == _OWN_HOST else f" at {self._endpoint}")

    def connect(self) -> Any:
        """With the given credentials, else with those that are found. [ST14]"""
        from fsspec.config import apply_config

        # late: an extra; of gcsfs' two classes the one that only uses HTTP
        from gcsfs.core import GCSFileSystem

        options = self.client_options("cache_timeout")
        given = apply_config(GCSFileSystem, dict(options))
        if given.get("token") is not None:
            return GCSFileSystem(**options)
        endpoint = str(
            given.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST") or "googleapis.com"
        )
        return self._logged_in(
            partial(GCSFileSystem, **options), is_google="googleapis.com" in endpoint
        )

    def _logged_in(self, make: Callable[..., Any], *, is_google: bool) -> Any:
        """gcsfs itself looks for a metadata server for half a minute, and then continues without
        credentials. [ST14]"""
        from google.auth import exceptions as auth

        why = ""
        for way in ("google_default", "cache"):
            try:
                found = within(_LOGIN_S, partial(make, token=way))
            except TimeoutError:
                why = (
                    f" within {_LOGIN_S:g} seconds: the metadata server, from which machines at "
                    "Google have them, does not answer"
                )
            except (auth.GoogleAuthError, ValueError):
                continue
            else:
                if found.credentials.credentials is not None:
                    return found
        if not is_google:
            return make(token="anon")  # an emulator
        raise StoreError(f"{self.url}: no usable credentials were found{why}. {self.credentials}")

    def read(self, key: str, start: int | None, end: int | None) -> tuple[bytes, int]:
        return self._fetch(key, span(start, end))

    def tail(self, key: str) -> tuple[bytes, int]:
        return self._fetch(key, TAIL)

    def write(self, key: str, data: bytes) -> None:
        self._put(key, data, {})

    def create(self, key: str, data: bytes) -> None:
        self._put(key, data, {"ifGenerationMatch": "0"})

    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        query = {"prefix": prefix, "fields": _LISTED}
        if start_from > prefix:
            query["startOffset"] = start_from
        if mark:
            query["pageToken"] = mark
        found = json.loads(self._send("GET", prefix, self._objects, query).body)
        return [_info(item) for item in found.get("items", ())], str(
            found.get("nextPageToken") or ""
        )

    def remove(self, key: str) -> None:
        self._send("DELETE", key, self._object(key), {})

    def upload(self, key: str) -> Upload:
        return _Resumable(self, key)

    def begin(self, key: str) -> str:
        """The address of a new resumable upload. It grants write access, so it is never shown."""
        query = {"uploadType": "resumable", "name": key}
        answer = self._send(
            "POST",
            key,
            self._uploads,
            query,
            headers={"X-Upload-Content-Type": "application/octet-stream"},
        )
        return str(answer.headers["Location"])

    def push(self, key: str, session: str, span: str, data: bytes) -> int | None:
        """Send bytes of a resumable upload; returns how many are stored, None: it is complete."""
        answer = self._send(
            "PUT",
            key,
            session,
            {},
            data,
            headers={"Content-Range": f"bytes {span}"},
            expected=(308,),
        )
        if answer.status != 308:
            return None
        stored = answer.headers.get("Range", "")
        return int(stored.rpartition("-")[2]) + 1 if stored else 0

    def forget(self, key: str, session: str) -> None:
        self._send("DELETE", key, session, {}, expected=(499,))

    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        import aiohttp
        from google.auth import exceptions as auth

        if isinstance(error, _RefusalError):
            return self._answer(error.answer, shown), True
        if isinstance(error, auth.GoogleAuthError) and not isinstance(error, auth.TransportError):
            return self.no_credentials(shown), False
        if isinstance(
            error,
            aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | auth.TransportError,
        ):
            return TransientError(
                f"{shown}: no connection to {self._endpoint}; check the endpoint and the network",
                sent=False,
            ), False
        if isinstance(
            error, aiohttp.ClientError | TimeoutError | OSError | EOFError | RuntimeError
        ):
            return TransientError(
                f"{shown}: the connection to {self._endpoint} failed ({type(error).__name__})",
                sent=True,
            ), False
        return ClientFailedError(
            f"{shown}: the client refuses the request ({type(error).__name__}: {error})"
        ), False

    def _answer(self, answer: _Answer, shown: str) -> Exception:
        status, (text, reason) = answer.status, _reason(answer.body)
        if status == 404 and "bucket does not exist" in text:
            return StoreError(
                f"{shown}: there is no bucket {self._bucket}; check its name, or create it"
            )
        if status == 400 and "requester pays" in text:
            return UsageError(
                f"{shown}: the requester pays for this bucket; give requester_pays=True in "
                "storage_options"
            )
        return self.answered(status, reason, shown, text)

    def _object(self, key: str) -> str:
        return f"{self._objects}/{_quoted(key)}"

    def _fetch(self, key: str, headers: Mapping[str, str]) -> tuple[bytes, int]:
        """The requested bytes, and the length of the whole object."""
        answer = self._send("GET", key, self._object(key), {"alt": "media"}, headers=headers)
        return answer.body, whole_size(answer.headers.get("Content-Range"), answer.body)

    def _put(self, key: str, data: bytes, condition: Mapping[str, str]) -> None:
        query = {"uploadType": "media", "name": key, **condition}
        headers = {"Content-Type": "application/octet-stream"}
        self._send("POST", key, self._uploads, query, data, headers=headers)

    def _send(
        self,
        method: str,
        key: str,
        url: str,
        query: Mapping[str, str],
        data: bytes = b"",
        *,
        headers: Mapping[str, str] = {},  # never mutated
        expected: Sequence[int] = (),
    ) -> _Answer:
        """One request. Returns responses below 300 and the expected ones."""

        async def ask(fs: Any) -> _Answer:
            import aiohttp
            from yarl import URL

            await open_gcs_session(fs)
            # and the project to bill
            asked = "&".join(
                f"{name}={_quoted(str(value))}" for name, value in gcs_params(fs, query).items()
            )
            target = URL(
                url + (f"{'&' if '?' in url else '?'}{asked}" if asked else ""), encoded=True
            )
            patience = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
            async with fs.session.request(
                method,
                target,
                data=io.BytesIO(data) if data else None,
                headers=gcs_headers(fs, headers),
                timeout=patience,
                allow_redirects=False,
            ) as response:
                answer = _Answer(response.status, dict(response.headers), await response.read())
            self.tell_time(answer.headers.get("Date"))
            if answer.status >= 300 and answer.status not in expected:
                raise _RefusalError(answer)
            return answer

        answer: _Answer = self.once(key, lambda fs: wait(fs, ask(fs), SENDING_S if data else None))
        return answer


class _Resumable:
    """A resumable upload: invisible before its last byte; Google removes an unfinished one after a
    week."""

    at_once = 1

    def __init__(self, backend: GcsBackend, key: str) -> None:
        self._backend, self._key = backend, key
        self._session = backend.persist(lambda: backend.begin(key))
        self._stored = 0
        self._waiting = b""

    def send(self, number: int, data: bytes) -> None:
        self._waiting += data
        self._backend.persist(lambda: self._push(""))

    def finish(self, number: int, data: bytes) -> None:
        self._waiting += data
        total = self._stored + len(self._waiting)
        self._backend.persist(lambda: self._push(str(total)))

    def discard(self) -> None:
        self._backend.persist(lambda: self._backend.forget(self._key, self._session))

    def _push(self, total: str) -> None:
        """When it is repeated, it sends bytes that the store has already; the store ignores
        those."""
        last = self._stored + len(self._waiting) - 1
        span = f"{self._stored}-{last}" if self._waiting else "*"
        try:
            stored = self._backend.push(
                self._key, self._session, f"{span}/{total or '*'}", self._waiting
            )
        except FileNotFoundError as error:
            raise StoreError(
                f"{error}: the store has forgotten this upload; run the task again"
            ) from None
        if stored is None:
            if not total:
                raise StoreError(
                    f"{self._backend.display_name(self._key)}: the store ended the upload "
                    "too early; run the task again"
                )
            return
        self._waiting = self._waiting[stored - self._stored :]
        self._stored = stored
        if total:
            raise TransientError(
                f"{self._backend.display_name(self._key)}: the store took a part only", sent=False
            )


def _info(item: Mapping[str, str]) -> ObjectInfo:
    return ObjectInfo(
        name=item["name"],
        size_bytes=int(item["size"]),
        modified=datetime.fromisoformat(item["timeCreated"]).timestamp(),
    )


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _reason(body: bytes) -> tuple[str, str]:
    """The text of an error, and its reason code."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        return str(error["message"]), str(error["errors"][0]["reason"])
    except (ValueError, LookupError, TypeError):
        return text[:300], ""
