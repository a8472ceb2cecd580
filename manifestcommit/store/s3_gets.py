"""GETs of data on S3, each sent by the thread that wants the bytes: what s3fs' client sends, at a fraction of its CPU. [ST41]

Address, headers, account, region, proxies and certificates are those of a GET which that client has sent; botocore signs and sends.
Not here: when a GET goes this way and what becomes of its errors (s3).
"""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from typing import Any

from .backend import wait
from .ranged import whole_size

# What the client sends in this context, with the settings of its HTTP session; noted only where somebody listens.
SENT: ContextVar[list[tuple[Any, dict[str, Any]]] | None] = ContextVar("manifestcommit-sent", default=None)
_OF_ONE_REQUEST = frozenset(
    {"authorization", "range", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "amz-sdk-invocation-id", "amz-sdk-request"}
)
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/s3/aws4_request, ")
_OTHER_WAYS = frozenset({"resolver", "socket_factory", "ssl_context"})  # to the endpoint than the system's
_CREDENTIALS_KEPT_S = 60.0  # botocore renews those that end at least ten minutes before they do


class Gets:
    """Ranged GETs in one bucket by kept connections of their own; for the process that made it, from any thread."""

    def __init__(self, fs: Any, base: str, headers: dict[str, str], region: str, settings: dict[str, Any]) -> None:
        """base: an object's URL but for its key; region: empty where requests are not signed; settings: of the HTTP session."""
        from botocore.httpsession import URLLib3Session  # late: an extra

        self._fs, self._base, self._headers, self._region = fs, base, headers, region
        self._session = URLLib3Session(**settings)
        self._signer: tuple[float, Any] | None = None
        self.has_worked = False

    def get(self, key: str, headers: dict[str, str]) -> tuple[bytes, int] | int:
        """The bytes asked for, and the length of the whole object; the HTTP status where the answer is anything else."""
        from botocore.awsrequest import AWSRequest
        from botocore.utils import percent_encode

        request = AWSRequest("GET", self._base + percent_encode(key, safe="/~"), headers=self._headers | headers, stream_output=True)
        if self._region:
            self._auth().add_auth(request)
        answer = self._session.send(request.prepare())
        if answer.status_code not in (200, 206):
            answer.raw.close()
            return int(answer.status_code)
        data: bytes = answer.raw.read()  # http.client raises where fewer come than were announced
        self.has_worked = True
        return data, whole_size(answer.headers.get("Content-Range"), data)

    def _auth(self) -> Any:
        """Signs with the account that the client has now. [SE1]"""
        now = time.monotonic()
        if self._signer is None or now - self._signer[0] > _CREDENTIALS_KEPT_S:
            client = self._fs.s3._request_signer
            self._signer = now, wait(self._fs, client.get_auth_instance("s3", self._region, "s3v4"))
        return self._signer[1]


def like(fs: Any, request: Any, settings: dict[str, Any], key: str) -> Gets | None:
    """What sends the like of this GET of `key`, for other keys; None where that is not plain."""
    from botocore.utils import percent_encode

    if _OTHER_WAYS & (settings.get("connector_args") or {}).keys():
        return None  # they are aiohttp's: without them a request, with a customer's key perhaps, would go elsewhere
    path = "/" + percent_encode(key, safe="/~")
    if request.method != "GET" or not request.url.endswith(path):
        return None
    texts = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
    signed = _SIGNED.match(texts.get("Authorization", ""))
    if "Authorization" in texts and signed is None:
        return None  # an older way to sign, or one for several regions
    headers = {name: value for name, value in texts.items() if name.lower() not in _OF_ONE_REQUEST}
    mine = {name: value for name, value in settings.items() if name != "connector_args"}  # aiohttp's alone
    return Gets(fs, request.url[: len(request.url) - len(path) + 1], headers, signed[1] if signed else "", mine)
