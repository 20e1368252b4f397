"""Requests over a network, with httpx."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from .._transport import Answer, TransportFailed

CONNECT_SECONDS = 10.0
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)


class AsyncRemoteTransport:
    """Sends requests to a server somewhere."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Reading the certificates of authorities takes longer than a request.
        transport = httpx.AsyncHTTPTransport(limits=LIMITS, verify=url.startswith("https:"))
        self._client = httpx.AsyncClient(base_url=url, headers=headers, transport=transport)

    async def request(
        self, method: str, target: str, headers: dict[str, str], content: bytes | None, timeout: float
    ) -> Answer:
        """Send a request and return the whole answer."""
        try:
            r = await self._client.request(method, target, content=content, headers=headers, timeout=times(timeout))
        except httpx.TransportError as e:
            raise failure(e) from e
        return Answer(r.status_code, dict(r.headers), r.content)

    def stream(self, target: str, headers: dict[str, str], timeout: float) -> AsyncRemoteStream:
        """Return the stream at a target."""
        headers = {**headers, "Accept-Encoding": "identity"}
        request = self._client.build_request("GET", target, headers=headers, timeout=times(timeout))
        return AsyncRemoteStream(self._client, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class AsyncRemoteStream:
    """An answer whose body is read as it comes."""

    def __init__(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        self._client = client
        self._request = request
        self.status = 0

    async def __aenter__(self) -> AsyncRemoteStream:
        try:
            self._response = await self._client.send(self._request, stream=True)
        except httpx.TransportError as e:
            raise failure(e) from e
        self.status = self._response.status_code
        self._chunks: AsyncIterator[bytes] = self._response.aiter_raw()
        return self

    async def read(self) -> bytes:
        """Return what came next of the body; nothing at its end."""
        try:
            return await anext(self._chunks, b"")
        except httpx.TransportError as e:
            raise failure(e) from e

    async def __aexit__(self, *_: object) -> None:
        await self._response.aclose()


def times(timeout: float) -> httpx.Timeout:
    """Return the longest waits, in seconds."""
    return httpx.Timeout(timeout, connect=CONNECT_SECONDS, pool=None)


def failure(e: httpx.TransportError) -> TransportFailed:
    """Return the error as all transports have it."""
    return TransportFailed(f"{type(e).__name__}: {e}")
