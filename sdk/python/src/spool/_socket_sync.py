"""Unix sockets that wait."""

from __future__ import annotations

import socket

from ._transport import ConnectFailed, TransportFailed

READ_BYTES = 1 << 18


class Socket:
    """A connection to a server of this machine."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError as e:
            self._socket.close()
            raise ConnectFailed(f"{path}: {e}") from e

    def send(self, data: bytes, timeout: float) -> None:
        """Send bytes. Each piece of them is to be taken within the timeout, in seconds."""
        self._socket.settimeout(timeout)
        try:
            with memoryview(data) as view:
                at = 0
                while at < len(view):
                    at += self._socket.send(view[at:])
        except OSError as e:
            raise TransportFailed(f"send a request: {e}") from e

    def receive(self, timeout: float) -> bytes:
        """Return what comes within the timeout, in seconds; nothing at the end."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(READ_BYTES)
        except OSError as e:
            raise TransportFailed(f"receive an answer: {e}") from e

    def silent(self) -> bool:
        """Report whether nothing came, not even the end."""
        self._socket.settimeout(0)
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
