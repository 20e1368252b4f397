"""HTTP/1.1 as far as Spool's server needs it, without sockets."""

from __future__ import annotations

from ._transport import TransportFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The most bytes of the first lines of an answer, and of the line before a chunk.
HEAD_BYTES = 1 << 16
LINE_BYTES = 1 << 12


def encode_head(method: str, target: str, headers: Mapping[str, str], size: int | None) -> bytes:
    """Return the first lines of a request with a body of a size."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        raise ValueError(f"a line break in {method} {target}")
    return text.encode("latin-1") + b"\r\n\r\n"


class Head:
    """Takes what comes from a connection until the first lines of an answer are there."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._rest = b""

    def feed(self, data: bytes) -> bytes | None:
        """Return what follows the first lines, or None if they are not complete."""
        self._rest += data
        while True:
            text, end, rest = self._rest.partition(b"\r\n\r\n")
            if len(text) > HEAD_BYTES:
                raise TransportFailed(f"the answer begins with more than {HEAD_BYTES} bytes of headers")
            if not end:
                return None
            self._decode(text.decode("latin-1"))
            self._rest = rest
            if self.status >= 200:  # otherwise it says that the answer follows
                return rest

    def _decode(self, text: str) -> None:
        first, *lines = text.split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise TransportFailed(f"not an answer of HTTP/1.1: {first[:80]!r}")
        self.status = int(status[:3])
        fields = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}


class Body:
    """Takes what comes from a connection after the first lines, and gives out the bytes of the body."""

    def __init__(self, head: Head) -> None:
        headers = head.headers
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        size = headers.get("content-length", "")
        if size and not size.isdecimal():
            raise TransportFailed(f"a body of {size!r} bytes")
        # The bytes until the end of the body or of a chunk; None until the connection ends.
        self._left = 0 if self._chunked or head.status in (204, 304) else int(size) if size else None
        self.done = self._left == 0 and not self._chunked
        self.reusable = self._left is not None and headers.get("connection", "").lower() != "close"
        self._ending = False
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of the body in what came."""
        if not data:
            if self._left is not None:
                raise TransportFailed("the connection ended before the answer")
            self.done = True
            return b""
        if self._chunked:
            return self._feed_chunks(self._rest + data if self._rest else data)
        if self._left is not None:
            if len(data) > self._left:
                raise TransportFailed("more came than the answer has")
            self._left -= len(data)
            self.done = self._left == 0
        return data

    def _feed_chunks(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            end = data.find(b"\n", at)
            if end < 0:
                if len(data) - at > LINE_BYTES:
                    raise TransportFailed(f"more than {LINE_BYTES} bytes before a chunk")
                break
            self._line(data[at:end].rstrip(b"\r"))
            at = end + 1
        if self.done and at < len(data):
            raise TransportFailed("more came than the answer has")
        self._rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _line(self, line: bytes) -> None:
        """Take a line between chunks: the size of the next, the end of the last, or a trailer."""
        if self._ending:
            self.done = not line
        elif line:
            size = line.partition(b";")[0].strip()
            try:
                self._left = int(size, 16)
            except ValueError:
                self._left = -1
            if self._left < 0:
                raise TransportFailed(f"a chunk of {size[:20]!r} bytes")
            self._ending = self._left == 0
