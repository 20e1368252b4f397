"""Unix sockets that let other tasks run while they wait."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from ._transport import ConnectFailed, TransportFailed

READ_BYTES = 1 << 18


class AsyncSocket:
    """A connection to a server of this machine. A task that is cancelled while it waits loses nothing else."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        try:
            self._socket.connect(path)  # at once, or never: nobody has to be asked over a network
        except OSError as e:
            self._socket.close()
            raise ConnectFailed(f"{path}: {e}") from e

    async def send(self, data: bytes, timeout: float) -> None:
        """Send bytes. Each piece of them is to be taken within the timeout, in seconds."""
        loop = asyncio.get_running_loop()
        try:
            with memoryview(data) as view:
                at = 0
                while at < len(view):
                    try:
                        at += self._socket.send(view[at:])
                    except (BlockingIOError, InterruptedError):
                        await self._wait(loop.add_writer, loop.remove_writer, timeout)
        except OSError as e:
            raise TransportFailed(f"send a request: {e}") from e

    async def receive(self, timeout: float) -> bytes:
        """Return what comes within the timeout, in seconds; nothing at the end."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    data = self._socket.recv(READ_BYTES)
                except (BlockingIOError, InterruptedError):
                    await self._wait(loop.add_reader, loop.remove_reader, timeout)
                    continue
                await asyncio.sleep(0)  # others have a turn although there is more
                return data
        except OSError as e:
            raise TransportFailed(f"receive an answer: {e}") from e

    async def _wait(self, watch: Any, forget: Any, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(timeout, settle, future, TimeoutError("timed out"))
        watch(self._socket, settle, future, None)
        try:
            await future
        finally:
            timer.cancel()
            forget(self._socket)

    def silent(self) -> bool:
        """Report whether nothing came, not even the end."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def settle(future: asyncio.Future[None], error: Exception | None) -> None:
    """End the wait for a future."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
