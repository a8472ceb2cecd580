"""The HTTP session below botocore, without automatic repeats and redirects. [ST14] [SE1]

aiohttp repeats an idempotent request if a kept connection breaks: a create that was carried out
would look refused, or not sent at all. And it follows redirects, with the body and the token, to
any host.
"""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

from .client_internals import follow_no_redirects
from .s3_gets import SENT


class OnceSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore ships no types
    """Sends every request once, to the endpoint and nowhere else."""

    def __init__(self, *more: Any, **settings: Any) -> None:
        super().__init__(*more, **settings)
        self._settings = settings

    async def send(self, request: Any) -> Any:
        if (sent := SENT.get()) is not None:
            sent.append((request, self._settings))
        return await super().send(request)

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        follow_no_redirects(session)
        return session
