"""All runs: which of them change, and what they ask."""

from __future__ import annotations

from .._errors import ConnectionLost, NotFound, TooMany, Unavailable
from .._events import Frames
from .._results import Ask
from .._transport import TransportFailed
from .http import HTTP, Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .. import _types as types

LONG_POLL_MS = 25_000


def watch(http: HTTP, params: dict[str, Any]) -> Iterator[types.Info]:
    """Yield the runs that a query selects, and then each that changes.

    A new connection gets everything again; what did not change is passed over, and what was
    selected before and is not any more is looked up.
    """
    known: dict[str, types.Info] = {}
    retry = Retry(http.reconnect)
    while True:
        frames = Frames()
        came: set[str] | None = set()  # until all runs are there
        try:
            with http.stream("/v1/watch", "text/event-stream", params) as r:
                while chunk := r.read():
                    for name, data in frames.feed(chunk):
                        if name == "run":
                            if came is not None:
                                came.add(data["id"])
                            if known.get(data["id"]) != data:
                                known[data["id"]] = data
                                yield data
                        elif name == "sync" and came is not None:
                            retry.reset()
                            for id in [id for id in known if id not in came]:
                                last = find(http, id)
                                if last is not None and last != known[id]:
                                    yield last
                                del known[id]
                            came = None
            retry.wait(ConnectionLost("the server ended the stream"))
        except (TransportFailed, Unavailable, TooMany) as e:
            retry.wait(e)


def find(http: HTTP, id: str) -> types.Info | None:
    """Return the description of a run, or None if it was deleted."""
    try:
        info: types.Info = http.get(f"/v1/runs/{id}")
    except NotFound:
        return None
    return info


def asks(http: HTTP, follow: bool, run: str | None, kind: str | None) -> Iterator[Ask]:
    """Yield the open asks, the oldest first, and with follow each that comes."""
    known: set[tuple[str, int]] = set()
    version: str | None = None
    while True:
        wait_ms = None if version is None else LONG_POLL_MS
        page: types.AskList = http.get("/v1/asks", run=run, kind=kind, since=version, wait_ms=wait_ms)
        for ask in page["asks"]:
            if (ask["run"], ask["seq"]) not in known:
                yield Ask(ask["run"], ask["seq"], ask.get("turn", 0), ask["ask"])
        if not follow:
            return
        known = {(ask["run"], ask["seq"]) for ask in page["asks"]}
        version = page["version"]
