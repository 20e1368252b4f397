"""Requests that are repeated until the server has answered."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx

from .._errors import ConnectionLost, TooMany, Unavailable, problem_error
from .._results import encode

FIRST_WAIT = 0.05
LONGEST_WAIT = 2.0
# A stream says something every 15 seconds, so that longer silence means a dead connection.
HEARTBEAT_MS = 15_000
TIMEOUT = httpx.Timeout(70.0, connect=10.0, pool=None)
STREAM_TIMEOUT = httpx.Timeout(45.0, connect=10.0, pool=None)


class HTTP:
    """A connection to a server that outlives cuts.

    A request that may be repeated is sent again when the connection is lost, for at most
    ``reconnect`` seconds.
    """

    def __init__(self, client: httpx.Client, reconnect: float) -> None:
        self.client = client
        self.reconnect = reconnect

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        content: bytes | None = None,
        repeat: bool = True,
        done: tuple[type[Exception], ...] = (),
        accept: str = "*/*",
    ) -> httpx.Response:
        """Send a request and return the answer, or raise what the server says.

        ``done`` are the errors that say that it was done before. They mean success if an earlier
        attempt was cut.
        """
        headers = {"Accept": accept}
        if body is not None:
            content = encode(body)
            headers["Content-Type"] = "application/json"
        elif content is not None:
            headers["Content-Type"] = "application/octet-stream"
        retry = Retry(self.reconnect)
        cut = False
        while True:
            try:
                r = self.client.request(
                    method, path, params=params, content=content, headers=headers, timeout=TIMEOUT
                )
                if r.status_code < 400:
                    return r
                raise problem_error(r.status_code, read_json(r.content))
            except done:
                if not cut:
                    raise
                return httpx.Response(204)
            except httpx.TransportError as e:
                cut = True
                if not repeat and not isinstance(e, httpx.ConnectError):
                    raise ConnectionLost(f"{method} {path}: {e!r}") from e
                retry.wait(e)
            except (Unavailable, TooMany) as e:
                if not repeat or not e.problem.get("retry_after_ms"):
                    raise
                retry.wait(e)

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path."""
        given = {k: v for k, v in params.items() if v is not None}
        r = self.send("GET", path, params=given, accept="application/json")
        return json.loads(r.content)

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """Post JSON and return the JSON of the answer."""
        r = self.send("POST", path, body, **options)
        return json.loads(r.content) if r.content else None

    @contextmanager
    def stream(self, path: str, accept: str, params: dict[str, Any]) -> Generator[httpx.Response, None, None]:
        """Open a stream."""
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        with self.client.stream("GET", path, params=params, headers=headers, timeout=STREAM_TIMEOUT) as r:
            if r.status_code >= 400:
                raise problem_error(r.status_code, read_json(r.read()))
            yield r

    def close(self) -> None:
        """Close the connections. Runs go on."""
        self.client.close()


class Retry:
    """Waits between attempts, longer each time, until the time is up."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.reset()

    def reset(self) -> None:
        """Begin anew: the server has answered."""
        self.delay = 0.0  # most cuts are short
        self.since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt, or raise ConnectionLost if the time is up."""
        now = time.monotonic()
        if self.since is None:
            self.since = now
        if now + self.delay > self.since + self.limit:
            if isinstance(error, (Unavailable, TooMany)):
                raise error
            raise ConnectionLost(f"the server cannot be reached: {error!r}") from error
        time.sleep(self.delay)
        self.delay = min(max(2 * self.delay, FIRST_WAIT), LONGEST_WAIT)


def read_json(content: bytes) -> Any:
    """Return JSON, or text if it is none."""
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
