"""Requests that are repeated until the server has answered."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

from .._errors import Closed, ConnectionLost, TooMany, Unavailable, problem_error
from .._results import encode
from .._transport import Answer, TransportFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Any

    from .transport import AsyncStream, AsyncTransport

FIRST_WAIT = 0.05
LONGEST_WAIT = 2.0
TIMEOUT = 70.0
# A stream says something every 15 seconds, so that longer silence means a dead connection.
HEARTBEAT_MS = 15_000
STREAM_TIMEOUT = 45.0


class AsyncHTTP:
    """A connection to a server that outlives cuts.

    A request is sent again when the connection is lost, for at most ``reconnect`` seconds. What must
    not be done twice has an id.
    """

    def __init__(self, transport: AsyncTransport, reconnect: float) -> None:
        self.transport = transport
        self.reconnect = reconnect
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise Closed("the client was closed")

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        content: bytes | None = None,
        patient: bool = True,
        done: tuple[type[Exception], ...] = (),
        accept: str = "*/*",
    ) -> Answer:
        """Send a request and return the answer, or raise what the server says.

        ``patient`` says whether to wait for a server that is busy now.
        ``done`` are the errors that say that it was done before. They mean success if an earlier
        attempt was cut.
        """
        headers = {"Accept": accept}
        if body is not None:
            content = encode(body)
            headers["Content-Type"] = "application/json"
        elif content is not None:
            headers["Content-Type"] = "application/octet-stream"
        target = path + query(params)
        retry = Retry(self.reconnect)
        cut = False
        while True:
            self._check()
            try:
                r = await self.transport.request(method, target, headers, content, TIMEOUT)
                if r.status < 400:
                    return r
                raise problem_error(r.status, read_json(r.content))
            except done:
                if not cut:
                    raise
                return Answer(204, {}, b"")
            except TransportFailed as e:
                cut = True
                await retry.wait(e)
            except (Unavailable, TooMany) as e:
                if not patient or not e.problem.get("retry_after_ms"):
                    raise
                await retry.wait(e)

    async def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path."""
        given = {k: v for k, v in params.items() if v is not None}
        r = await self.send("GET", path, params=given, accept="application/json")
        return json.loads(r.content)

    async def post(self, path: str, body: Any, **options: Any) -> Any:
        """Post JSON and return the JSON of the answer."""
        r = await self.send("POST", path, body, **options)
        return json.loads(r.content) if r.content else None

    @asynccontextmanager
    async def stream(self, path: str, accept: str, params: dict[str, Any]) -> AsyncGenerator[AsyncStream, None]:
        """Open a stream."""
        self._check()
        async with self.transport.stream(path + query(params), {"Accept": accept}, STREAM_TIMEOUT) as r:
            if r.status >= 400:
                content = b""
                while piece := await r.read():
                    content += piece
                raise problem_error(r.status, read_json(content))
            yield r

    async def aclose(self) -> None:
        """Close the connections. Runs go on."""
        self._closed = True
        await self.transport.aclose()


class Retry:
    """Waits between attempts, longer each time, until the time is up."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.reset()

    def reset(self) -> None:
        """Begin anew: the server has answered."""
        self.delay = 0.0  # most cuts are short
        self.since: float | None = None

    async def wait(self, error: Exception) -> None:
        """Wait before the next attempt, or raise ConnectionLost if the time is up."""
        now = time.monotonic()
        if self.since is None:
            self.since = now
        if now + self.delay > self.since + self.limit:
            if isinstance(error, (Unavailable, TooMany)):
                raise error
            raise ConnectionLost(f"the server cannot be reached: {error}") from error
        await asyncio.sleep(self.delay)
        self.delay = min(max(2 * self.delay, FIRST_WAIT), LONGEST_WAIT)


def read_json(content: bytes) -> Any:
    """Return JSON, or text if it is none."""
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


UNRESERVED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def quote(text: str) -> str:
    """Return a text as one part of a path or a query."""
    return "".join(chr(b) if b in UNRESERVED else f"%{b:02X}" for b in text.encode())


def query(params: Mapping[str, str | int | tuple[str, ...]] | None) -> str:
    """Return parameters as the end of a target. One with a tuple comes once for each of its values."""
    pairs: list[str] = []
    for name, value in (params or {}).items():
        values = value if isinstance(value, tuple) else (value,)
        pairs += [f"{name}={quote(str(one))}" for one in values]
    return "?" + "&".join(pairs) if pairs else ""
