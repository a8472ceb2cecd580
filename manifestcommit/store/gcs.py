"""Google Cloud Storage: one upload with `ifGenerationMatch=0` per create. [ST10] [ST13]

The options are those of gcsfs; google-auth finds credentials and renews tokens. The requests are of
the JSON API. Uploads are of type `multipart`: the emulator disregards the condition of the other
type that takes one request.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from ..errors import StoreError, UsageError
from .arrow_filesystem import TAIL, span, whole_size
from .backend import Upload, within
from .base import ObjectInfo
from .http import (
    OF_FILES,
    Answer,
    HttpBackend,
    HttpClient,
    NotSentError,
    Way,
    connections,
    from_environment,
)
from .options import StorageOptions, public_endpoint
from .retry import TransientError

_OWN_HOST = "https://storage.googleapis.com"
_LOGIN_S = 6.0  # two attempts of google-auth to reach a metadata server that does not answer
_LISTED = "items(name,size,timeCreated,generation),nextPageToken"


class Account:
    """One process' way to Google's store with one set of options; for any number of threads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {name: value for name, value in options.items() if name not in OF_FILES}
        endpoint = given.pop("endpoint_url", None) or os.environ.get("STORAGE_EMULATOR_HOST")
        endpoint = str(endpoint or _OWN_HOST).rstrip("/")
        self.endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        token, access = given.pop("token", None), given.pop("access", "full_control")
        project = given.pop("project", None) or os.environ.get("GCSFS_DEFAULT_PROJECT")
        payer = given.pop("requester_pays", False)
        if given:
            raise UsageError(f"gs:// takes no option {', '.join(sorted(map(str, given)))}")
        scopes = [f"https://www.googleapis.com/auth/devstorage.{access}"]
        way = Way(proxies=from_environment(self.endpoint))
        self.http = HttpClient(way)
        if token is None:
            is_google = "googleapis.com" in self.endpoint
            self._credentials, own = _found_credentials(scopes, is_google=is_google)
            project = project or own
        else:
            self._credentials = _given_credentials(token, scopes)
        self._payer = project if payer is True else payer or ""
        if payer and not self._payer:
            raise UsageError("requester_pays=True needs project in storage_options: who pays")
        self._lock = threading.Lock()
        if self._credentials is not None:
            from google.auth.transport import urllib3

            transport: Any = urllib3  # google-auth has no types for its functions
            self._renewal = transport.Request(connections(way, "https"))

    def send(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        asked = {**query, **({"userProject": self._payer} if self._payer else {})}
        target = "&".join(f"{name}={_quoted(value)}" for name, value in asked.items())
        if target:
            url += f"{'&' if '?' in url else '?'}{target}"
        sent = dict(headers)
        if self._credentials is not None:
            with self._lock:
                self._credentials.before_request(self._renewal, method, url, sent)
        if method != "GET":
            sent["Content-Length"] = str(len(body))
        return self.http.send(method, url, sent, body)


def _given_credentials(token: Any, scopes: list[str]) -> Any:
    import google.auth
    from google.auth.compute_engine import Credentials as OfMachines
    from google.auth.credentials import Credentials
    from google.oauth2.credentials import Credentials as OfUsers
    from google.oauth2.service_account import Credentials as OfServices

    machines: Any = OfMachines  # google-auth has no types for its functions
    users: Any = OfUsers
    services: Any = OfServices
    load: Any = google.auth.load_credentials_from_dict
    if isinstance(token, Credentials) or token == "anon":
        return None if token == "anon" else token
    if token == "google_default":
        return google.auth.default(scopes=scopes)[0]
    if token == "cloud":
        return machines()
    if token in ("browser", "cache"):
        raise UsageError(
            f"token={token!r} is not supported; log in by `gcloud auth application-default login` "
            "and leave token out"
        )
    if isinstance(token, str):
        if not os.path.exists(token):
            return users(token)
        with open(token, encoding="utf-8") as file:
            token = json.load(file)
    if not isinstance(token, Mapping):
        raise UsageError("token is the name of a file, its content as a mapping, or a text")
    if token.get("type") == "service_account":
        return services.from_service_account_info(token, scopes=scopes)
    if "refresh_token" in token:
        return users.from_authorized_user_info(token)
    return load(token, scopes=scopes)[0]


def _found_credentials(scopes: list[str], *, is_google: bool) -> tuple[Any, str | None]:
    """Those of the environment, and their project. google-auth itself looks for a metadata server
    for half a minute. [ST14]"""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    why = ""
    try:
        return within(_LOGIN_S, lambda: google.auth.default(scopes=scopes))
    except TimeoutError:
        why = (
            f" within {_LOGIN_S:g} seconds: the metadata server, from which machines at Google "
            "have them, does not answer"
        )
    except (GoogleAuthError, ValueError):
        pass
    if is_google:
        raise StoreError(f"no usable credentials were found{why}. {GcsBackend.credentials}")
    return None, None  # an emulator


class GcsBackend(HttpBackend):
    """Requests to one bucket, each sent once. [ST14]"""

    name = "gs://"
    sections = ("gs", "gcs")
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
        try:
            endpoint = self.connection().client.endpoint
        except StoreError as error:
            raise StoreError(f"{self.url}: {error}") from None
        self._endpoint = public_endpoint(endpoint)
        self._objects = f"{endpoint}/storage/v1/b/{_quoted(bucket)}/o"
        self._uploads = f"{endpoint}/upload/storage/v1/b/{_quoted(bucket)}/o"

    @property
    def where(self) -> str:
        return self._endpoint

    @property
    def url(self) -> str:
        return f"gs://{self._bucket}"

    @property
    def identity(self) -> str:
        return self.url + ("" if self._endpoint == _OWN_HOST else f" at {self._endpoint}")

    def connect(self) -> Any:
        return Account(self.given())

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

    def folder_page(self, prefix: str, mark: str) -> tuple[Sequence[str], str]:
        query = {"prefix": prefix, "delimiter": "/", "fields": "prefixes,nextPageToken"}
        if mark:
            query["pageToken"] = mark
        found = json.loads(self._send("GET", prefix, self._objects, query).body)
        return found.get("prefixes", ()), str(found.get("nextPageToken") or "")

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
        from google.auth import exceptions as auth

        if isinstance(error, auth.TransportError):
            return super().translate(NotSentError(), shown)
        if isinstance(error, auth.GoogleAuthError):
            return self.no_credentials(shown), False
        return super().translate(error, shown)

    def refused(self, answer: Answer, shown: str) -> Exception:
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
        boundary = secrets.token_hex(16)
        head = (
            f"--{boundary}\r\nContent-Type: application/json\r\n\r\n"
            f"{json.dumps({'name': key})}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        body = b"".join([head.encode(), data, f"\r\n--{boundary}--\r\n".encode()])
        query = {"uploadType": "multipart", "name": key, **condition}
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        self._send("POST", key, self._uploads, query, body, headers=headers)

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
    ) -> Answer:
        """One request. Returns responses below 300 and the expected ones."""
        return self.once(
            key,
            lambda account: self.told(account.send(method, url, query, headers, data), expected),
        )


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
        etag=item.get("generation", ""),  # its etag changes with metadata, too
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
