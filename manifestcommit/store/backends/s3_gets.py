"""GETs of data on S3, sent by the thread that needs the bytes: the same request as from s3fs'
client, at a fraction of its CPU. [ST41]

Address, headers, account, region, proxies and certificates are those of a GET which that client has
sent; botocore signs and sends.
"""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from typing import Any

from .arrow_filesystem import whole_size
from .backend import wait
from .client_internals import s3_signer

# The requests that the client sends in this context, with the settings of its HTTP session;
# recorded only while needed.
SENT: ContextVar[list[tuple[Any, dict[str, Any]]] | None] = ContextVar(
    "manifestcommit-sent", default=None
)
_OF_ONE_REQUEST = frozenset(
    {
        "authorization",
        "range",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
    }
)
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/s3/aws4_request, ")
# to the endpoint, where it differs from the system's
_OTHER_WAYS = frozenset({"resolver", "socket_factory", "ssl_context"})
_CREDENTIALS_KEPT_S = 60.0  # botocore renews credentials at least ten minutes before they end


class Gets:
    """Ranged GETs in one bucket over its own kept connections; for the process that made it, from
    any thread."""

    def __init__(
        self, fs: Any, base: str, headers: dict[str, str], region: str, settings: dict[str, Any]
    ) -> None:
        """base: an object's URL without its key; region: empty if requests are not signed;
        settings: of the HTTP session."""
        from botocore.httpsession import URLLib3Session  # late: an extra

        self._fs, self._base, self._headers, self._region = fs, base, headers, region
        self._session = URLLib3Session(**settings)
        self._signer: tuple[float, Any] | None = None
        self.has_worked = False

    def get(self, key: str, headers: dict[str, str]) -> tuple[bytes, int] | int:
        """The requested bytes, and the length of the whole object; the HTTP status if the response
        is anything else."""
        from botocore.awsrequest import AWSRequest
        from botocore.utils import percent_encode

        request = AWSRequest(
            "GET",
            self._base + percent_encode(key, safe="/~"),
            headers=self._headers | headers,
            stream_output=True,
        )
        if self._region:
            self._auth().add_auth(request)
        answer = self._session.send(request.prepare())
        if answer.status_code not in (200, 206):
            answer.raw.close()
            return int(answer.status_code)
        # http.client raises an error if fewer bytes arrive than announced
        data: bytes = answer.raw.read()
        self.has_worked = True
        return data, whole_size(answer.headers.get("Content-Range"), data)

    def _auth(self) -> Any:
        """Signs with the client's current account. [SE1]"""
        now = time.monotonic()
        if self._signer is None or now - self._signer[0] > _CREDENTIALS_KEPT_S:
            signer = s3_signer(self._fs)
            self._signer = now, wait(self._fs, signer.get_auth_instance("s3", self._region, "s3v4"))
        return self._signer[1]


def clone_request(fs: Any, request: Any, settings: dict[str, Any], key: str) -> Gets | None:
    """A client that sends the equivalent of this GET of `key` for other keys; None if that is not
    straightforward."""
    from botocore.utils import percent_encode

    if _OTHER_WAYS & (settings.get("connector_args") or {}).keys():
        # these belong to aiohttp: without them a request, perhaps with a customer's key, would go
        # elsewhere
        return None
    path = "/" + percent_encode(key, safe="/~")
    if request.method != "GET" or not request.url.endswith(path):
        return None
    texts = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    signed = _SIGNED.match(texts.get("Authorization", ""))
    if "Authorization" in texts and signed is None:
        return None  # an older signature, or one for several regions
    headers = {name: value for name, value in texts.items() if name.lower() not in _OF_ONE_REQUEST}
    # aiohttp's only
    mine = {name: value for name, value in settings.items() if name != "connector_args"}
    return Gets(
        fs,
        request.url[: len(request.url) - len(path) + 1],
        headers,
        signed[1] if signed else "",
        mine,
    )
