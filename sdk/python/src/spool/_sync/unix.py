"""Requests over a unix socket, with the standard library only."""

from __future__ import annotations

from .._socket_sync import Socket
from .._transport import Answer, ConnectFailed, TransportFailed
from .._wire import Body, Head, encode_head
from .local import ensure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._local import Place

IDLE_CONNECTIONS = 20
# A body that is not larger is sent together with the lines before it.
TOGETHER_BYTES = 1 << 16


class UnixTransport:
    """Sends requests to the server of this user, and starts it again if it has ended: one that nobody uses does."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: list[Socket] = []

    def request(
        self, method: str, target: str, headers: dict[str, str], content: bytes | None, timeout: float
    ) -> Answer:
        """Send a request and return the whole answer."""
        with UnixStream(self, method, target, headers, content, timeout) as r:
            pieces: list[bytes] = []
            while piece := r.read():
                pieces.append(piece)
            return Answer(r.status, r.headers, b"".join(pieces))

    def stream(self, target: str, headers: dict[str, str], timeout: float) -> UnixStream:
        """Return the stream at a target."""
        return UnixStream(self, "GET", target, headers, None, timeout)

    def take(self) -> Socket:
        """Return a connection that nobody uses, or a new one."""
        while True:
            try:
                socket = self._idle.pop()
            except IndexError:  # asking first would be a race of threads
                break
            if socket.silent():
                return socket
            socket.close()
        try:
            return Socket(self._place.socket)
        except ConnectFailed:
            ensure(self._place)
            return Socket(self._place.socket)

    def give(self, socket: Socket) -> None:
        """Keep a connection for the next request."""
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(socket)
        else:
            socket.close()

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()


class UnixStream:
    """An answer whose body is read as it comes. Its connection is used again if all of it was read."""

    def __init__(
        self,
        transport: UnixTransport,
        method: str,
        target: str,
        headers: dict[str, str],
        content: bytes | None,
        timeout: float,
    ) -> None:
        self._transport = transport
        self._request = encode_head(method, target, headers, None if content is None else len(content))
        self._content = content
        self._timeout = timeout
        self.status = 0
        self.headers: dict[str, str] = {}

    def __enter__(self) -> UnixStream:
        self._socket = self._transport.take()
        try:
            self._begin()
        except BaseException:
            self._socket.close()
            raise
        return self

    def _begin(self) -> None:
        try:
            self._send()
        except TransportFailed as e:
            try:  # a server that takes no more may have said why
                self._receive_head()
            except TransportFailed:
                raise e from None
            self._body.reusable = False
        else:
            self._receive_head()

    def _send(self) -> None:
        content = self._content or b""
        if len(content) <= TOGETHER_BYTES:
            self._socket.send(self._request + content, self._timeout)
        else:
            self._socket.send(self._request, self._timeout)
            self._socket.send(content, self._timeout)

    def _receive_head(self) -> None:
        head = Head()
        rest: bytes | None = None
        while rest is None:
            data = self._socket.receive(self._timeout)
            if not data:
                raise TransportFailed("the connection ended before the answer")
            rest = head.feed(data)
        self.status, self.headers = head.status, head.headers
        self._body = Body(head)
        self._rest = self._body.feed(rest) if rest else b""

    def read(self) -> bytes:
        """Return what came next of the body; nothing at its end."""
        piece, self._rest = self._rest, b""
        while not piece and not self._body.done:
            piece = self._body.feed(self._socket.receive(self._timeout))
        return piece

    def __exit__(self, *_: object) -> None:
        if self._body.done and self._body.reusable:
            self._transport.give(self._socket)
        else:
            self._socket.close()
