"""The server of this user, which is started when it is needed."""

from __future__ import annotations

import httpx

from .._local import POLL_SECONDS, START_SECONDS, Place
from .http import Retry


async def ensure(place: Place) -> None:
    """Start the server if it does not listen, and wait until it does."""
    if place.answers():
        return
    starting = place.start()
    retry = Retry(START_SECONDS)
    try:
        while not place.answers():
            retry.delay = POLL_SECONDS
            await retry.wait(starting.failure())
    finally:
        starting.done()


class AsyncLocalTransport(httpx.AsyncHTTPTransport):
    """Sends requests to the server, and starts it again if it has ended: one that nobody uses does."""

    def __init__(self, place: Place, limits: httpx.Limits) -> None:
        super().__init__(uds=place.socket, limits=limits, verify=False)
        self._place = place

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        try:
            return await super().handle_async_request(request)
        except httpx.ConnectError:
            await ensure(self._place)
            return await super().handle_async_request(request)
