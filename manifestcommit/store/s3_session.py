"""The HTTP session below botocore, kept from doing what nobody asked for. [ST14] [SE1]

aiohttp sends an idempotent request again where a kept connection breaks: a create that was carried out would look refused, or not
sent at all. And it follows redirects, with the body and the token, to whatever host is named.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

from .s3_gets import SENT


class OnceSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore ships no types
    """Sends each request once, to the endpoint and nowhere else."""

    def __init__(self, *more: Any, **settings: Any) -> None:
        super().__init__(*more, **settings)
        self._settings = settings

    async def send(self, request: Any) -> Any:
        if (sent := SENT.get()) is not None:
            sent.append((request, self._settings))
        return await super().send(request)

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        if session._retry_connection:  # neither has a public switch
            session._retry_connection = False
            vars(session)["_request"] = partial(session._request, allow_redirects=False)
        return session
