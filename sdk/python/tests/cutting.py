"""A proxy that cuts connections at random bytes."""

from __future__ import annotations

import contextlib
import math
import random
import socket
import struct
import threading

SHORT = 2_000
SHORT_IN_A_ROW = 3


class CuttingProxy:
    """Forwards connections to a server, and resets each after a random number of bytes: often a few.

    It has the port of the server at another address of this machine, so that the server knows
    its name, or is a unix socket before another one.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        sockets: tuple[str, str] | None = None,
        cuts: float = math.inf,
        most: int = 200_000,
        seed: int = 7,
    ) -> None:
        if sockets:
            path, target = sockets
            self._connect = lambda: connect_unix(target)
            self._listener = listen_unix(path)
        else:
            address = f"127.0.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
            self.url = f"http://{address}:{port}"
            self._connect = lambda: socket.create_connection(("127.0.0.1", port))
            self._listener = socket.create_server((address, port))
        self.cuts = 0
        self._left = cuts
        self._most = most
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._refuses = False
        self._short = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = self._connect()
            except OSError:
                return
            with self._lock:
                if self._refuses:
                    client.close()
                    server.close()
                    continue
                self._open |= {client, server}
            threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        budget = self._budget() if answers else None
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if budget is not None and len(data) > budget:
                    sink.sendall(data[:budget])
                    self._cut(source, sink)
                    return
                sink.sendall(data)
                if budget is not None:
                    budget -= len(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _budget(self) -> int | None:
        """Return after how many bytes to cut a connection. Few are short after each other, so that requests succeed."""
        with self._lock:
            if self._left <= 0:
                return None
            size = round(self._most ** self._random.uniform(0.3, 1))
            self._short = self._short + 1 if size < SHORT else 0
            if self._short > SHORT_IN_A_ROW:
                self._short = 0
                return self._most
            return size

    def _cut(self, *ends: socket.socket) -> None:
        with self._lock:
            self._left -= 1
            self.cuts += 1
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def refuse(self) -> None:
        """Cut all connections and let no others pass."""
        with self._lock:
            self._refuses = True
            ends, self._open = self._open, set()
        self._cut(*ends)

    def admit(self) -> None:
        """Let connections pass again."""
        with self._lock:
            self._refuses = False

    def close(self) -> None:
        """Stop accepting."""
        self._listener.close()


def connect_unix(path: str) -> socket.socket:
    """Connect to a unix socket."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s


def listen_unix(path: str) -> socket.socket:
    """Listen on a unix socket."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(1024)
    return s
