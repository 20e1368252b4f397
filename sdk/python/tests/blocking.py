"""The asynchronous half behind the interface of the other, so that both pass one suite."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import spool
from spool._async.http import AsyncHTTP


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        """Wait for a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def close(self) -> None:
        """End the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


NAMES = {"close": "aclose"}
KINDS = (
    spool.AsyncSpool,
    spool.AsyncRun,
    spool.AsyncStdin,
    spool.AsyncTurn,
    spool.AsyncKernel,
    spool.AsyncAgent,
    spool.AsyncTools,
    AsyncHTTP,
)


class Blocking:
    """An object whose coroutines and iterators are waited for."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def _wrap(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            value = self._loop.run(value)
        if hasattr(value, "__aiter__"):
            return self._iterate(value)
        return Blocking(self._loop, value) if isinstance(value, KINDS) else value

    def _iterate(self, iterator: Any) -> Any:
        try:
            while True:
                try:
                    yield self._wrap(self._loop.run(anext(iterator)))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(iterator.aclose())

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name if hasattr(self._inner, name) else NAMES.get(name, name))
        if callable(value) and not isinstance(value, KINDS):
            return lambda *args, **keywords: self._wrap(value(*map(inner, args), **keywords))
        return self._wrap(value)

    def __repr__(self) -> str:
        return repr(self._inner)


def inner(value: Any) -> Any:
    """Return what is behind the interface."""
    return value._inner if isinstance(value, Blocking) else value
