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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from ..errors import StoreError, UsageError
from .base import ObjectInfo, StorageOptions
from .http import Answer, HttpClient, NoAnswerError, Way, from_environment
from .object_store import NoCredentialsError, ObjectStore, Page, Request, none_left, query_of

T = TypeVar("T")

_OWN_HOST = "https://storage.googleapis.com"
_LOGIN_S = 6.0  # two attempts of google-auth to reach a metadata server that does not answer
_LISTED = "kind,items(name,size,timeCreated,generation),prefixes,nextPageToken"
_UNIT = 256 * 1024  # parts of a resumable upload have multiples of it, except the last


class Account:
    """One process' way to Google's store with one set of options; for any number of threads."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = dict(options)
        endpoint = given.pop("endpoint_url", None) or os.environ.get("STORAGE_EMULATOR_HOST")
        endpoint = str(endpoint or _OWN_HOST).rstrip("/")
        self.endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        self.is_providers = self.endpoint == _OWN_HOST
        token, access = given.pop("token", None), given.pop("access", "full_control")
        project = given.pop("project", None) or os.environ.get("GCSFS_DEFAULT_PROJECT")
        payer = given.pop("requester_pays", False)
        none_left("gs", given)
        scopes = [f"https://www.googleapis.com/auth/devstorage.{access}"]
        self.http = HttpClient(Way(proxies=from_environment(self.endpoint)))
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

    def send(self, request: Request) -> Answer:
        query = {**request.query, **({"userProject": self._payer} if self._payer else {})}
        url, sent = request.place, dict(request.headers)
        if query:
            url += f"{'&' if '?' in url else '?'}{query_of(query)}"
        if self._credentials is not None:
            self._authorize(request.kind, url, sent)
        return self.http.send(request.kind, url, sent, request.body, request.into)

    def _authorize(self, method: str, url: str, headers: dict[str, str]) -> None:
        from google.auth.exceptions import GoogleAuthError, TransportError

        try:
            with self._lock:
                self._credentials.before_request(self._renew, method, url, headers)
        except (TransportError, NoAnswerError) as error:
            raise NoAnswerError("no connection to who gives tokens", sent=False) from error
        except GoogleAuthError:
            raise NoCredentialsError from None

    def _renew(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Any:
        """A request for a token, as google-auth sends them."""
        answer = self.http.send(method, url, headers or {}, body or b"")
        return SimpleNamespace(status=answer.status, headers=answer.headers, data=answer.body)


def _given_credentials(token: Any, scopes: list[str]) -> Any:
    import google.auth.compute_engine
    import google.oauth2.credentials
    import google.oauth2.service_account
    from google.auth.credentials import Credentials

    # google-auth has no types for its functions
    auth: Any = google.auth
    users: Any = google.oauth2.credentials.Credentials
    services: Any = google.oauth2.service_account.Credentials
    if isinstance(token, Credentials) or token == "anon":
        return None if token == "anon" else token
    if token == "google_default":
        return auth.default(scopes=scopes)[0]
    if token == "cloud":
        return auth.compute_engine.Credentials()
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
    return auth.load_credentials_from_dict(token, scopes=scopes)[0]


def _found_credentials(scopes: list[str], *, is_google: bool) -> tuple[Any, str | None]:
    """Those of the environment, and their project. google-auth itself looks for a metadata server
    for half a minute. [ST14]"""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    why = ""
    try:
        return _within(_LOGIN_S, lambda: google.auth.default(scopes=scopes))
    except TimeoutError:
        why = (
            f" within {_LOGIN_S:g} seconds: the metadata server, from which machines at Google "
            "have them, does not answer"
        )
    except (GoogleAuthError, ValueError):
        pass
    if is_google:
        raise NoCredentialsError(why)
    return None, None  # an emulator


def _within(limit_s: float, work: Callable[[], T]) -> T:
    """The result of the work; TimeoutError after the limit, and its thread is abandoned, because
    libraries know no limit. [ST14]"""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="manifestcommit-login", daemon=True).start()
    return found.result(limit_s)


class GcsStore(ObjectStore):
    """Requests to one bucket of Google's. [ST14]"""

    account = Account
    extra = "gcs"
    takes = "gcsfs' options: token, project, access, endpoint_url, requester_pays and so on"
    credentials = (
        "Give token in storage_options, GOOGLE_APPLICATION_CREDENTIALS in the environment, or log "
        "in by gcloud; for a public bucket token='anon'."
    )
    address = (
        "Check endpoint_url in storage_options, and STORAGE_EMULATOR_HOST and the proxies in the "
        "environment."
    )
    pages_are_ordered = True
    parts_at_once = 1
    got_by: Mapping[str, str] = {"alt": "media"}  # never mutated
    tagged_by = "x-goog-generation"

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        super().__init__(scheme, root, options)
        self.connection()  # refuses options that no client takes

    def _place(self, prefix: str = "") -> str:
        """Where the bucket's objects are: not kept, since the endpoint may have a password."""
        endpoint = self.connection().client.endpoint
        return f"{endpoint}{prefix}/storage/v1/b/{quote(self._bucket, safe='')}/o"

    def located(self, request: Request) -> Request:
        place = request.place or f"{self._place()}/{quote(request.key, safe='')}"
        return request._replace(place=place)

    def write(self, key: str, data: bytes, *, is_create: bool = False) -> None:
        boundary = secrets.token_hex(16)
        head = (
            f"--{boundary}\r\nContent-Type: application/json\r\n\r\n"
            f"{json.dumps({'name': key})}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        body = b"".join([head.encode(), data, f"\r\n--{boundary}--\r\n".encode()])
        query = {"uploadType": "multipart", "name": key}
        query |= {"ifGenerationMatch": "0"} if is_create else {}
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        place = self._place("/upload")
        self.ask(Request("POST", key, query, headers, body, place, is_create=is_create))

    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        query = {"prefix": prefix, "fields": _LISTED}
        query |= {"delimiter": delimiter} if delimiter else {}
        query |= {"startOffset": start_from} if start_from > prefix else {}
        query |= {"pageToken": mark} if mark else {}
        return self.ask_for(Request("GET", prefix, query, place=self._place()), _page)

    # A resumable upload is invisible before its last byte; Google removes an unfinished one after
    # a week.

    def begin_upload(self, key: str) -> _Upload:
        query = {"uploadType": "resumable", "name": key}
        headers = {"X-Upload-Content-Type": "application/octet-stream"}
        request = Request("POST", key, query, headers, place=self._place("/upload"))
        return self.ask_for(request, lambda answer: _Upload(answer.headers["location"]))

    def send_part(self, key: str, upload: _Upload, number: int, data: bytes) -> None:
        upload.waiting += data
        whole = len(upload.waiting) // _UNIT * _UNIT
        if whole and self._push(key, upload, whole, "*"):
            self._ended(key, "the store ended the upload too early")

    def finish_upload(
        self, key: str, upload: _Upload, parts: Sequence[None], size_bytes: int
    ) -> None:
        stored = -1
        while not self._push(key, upload, len(upload.waiting), str(size_bytes)):
            if upload.stored == stored:
                self._ended(key, "the store took a part only")
            stored = upload.stored

    def abort_upload(self, key: str, upload: _Upload) -> None:
        self.ask(Request("DELETE", key, place=upload.session, expected=(499,)))

    def _push(self, key: str, upload: _Upload, count: int, total: str) -> bool:
        """Send so many of the bytes that wait; whether the upload is complete. When it is repeated,
        it sends bytes that the store has already; the store ignores those."""
        span = f"{upload.stored}-{upload.stored + count - 1}" if count else "*"
        headers = {"Content-Range": f"bytes {span}/{total}"}
        body = upload.waiting[:count]
        request = Request("PUT", key, {}, headers, body, upload.session, expected=(308,))

        def stored(answer: Answer) -> int | None:
            if answer.status != 308:
                return None
            taken = answer.headers.get("range", "")
            return int(taken.rpartition("-")[2]) + 1 if taken else 0

        try:
            found = self.ask_for(request, stored)
        except FileNotFoundError:
            self._ended(key, "the store has forgotten this upload")
        if found is None:
            return True
        upload.waiting = upload.waiting[found - upload.stored :]
        upload.stored = found
        return False

    def _ended(self, key: str, why: str) -> NoReturn:
        raise StoreError(f"{self.display_name(key)}: {why}; run the task again")


class _Upload:
    """session: its address, which grants write access and is never shown; stored: how many bytes
    the store has; waiting: those that follow."""

    def __init__(self, session: str) -> None:
        self.session, self.stored, self.waiting = session, 0, b""


def _page(answer: Answer) -> Page:
    found = json.loads(answer.body)
    if found["kind"] != "storage#objects":  # a proxy's page must not pass for an empty list
        raise KeyError("kind")
    return Page(
        objects=[_info(item) for item in found.get("items", ())],
        mark=str(found.get("nextPageToken") or ""),
        folders=found.get("prefixes", ()),
    )


def _info(item: Mapping[str, str]) -> ObjectInfo:
    return ObjectInfo(
        name=item["name"],
        size_bytes=int(item["size"]),
        modified=datetime.fromisoformat(item["timeCreated"]).timestamp(),
        etag=item.get("generation", ""),  # its etag changes with metadata, too
    )
