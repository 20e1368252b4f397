"""Requests over a unix socket, with the standard library only."""

from __future__ import annotations

from .._socket_async import AsyncSocket
from .._transport import Answer, ConnectFailed, TransportFailed
from .._wire import Body, Head, encode_head
from .local import ensure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._local import Place

IDLE_CONNECTIONS = 20
# A body that is not larger is sent together with the lines before it.
TOGETHER_BYTES = 1 << 16


class AsyncUnixTransport:
    """Sends requests to the server of this user, and starts it again if it has ended: one that nobody uses does."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: list[AsyncSocket] = []

    async def request(
        self, method: str, target: str, headers: dict[str, str], content: bytes | None, timeout: float
    ) -> Answer:
        """Send a request and return the whole answer."""
        async with AsyncUnixStream(self, method, target, headers, content, timeout) as r:
            pieces: list[bytes] = []
            while piece := await r.read():
                pieces.append(piece)
            return Answer(r.status, r.headers, b"".join(pieces))

    def stream(self, target: str, headers: dict[str, str], timeout: float) -> AsyncUnixStream:
        """Return the stream at a target."""
        return AsyncUnixStream(self, "GET", target, headers, None, timeout)

    async def take(self) -> AsyncSocket:
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
            return AsyncSocket(self._place.socket)
        except ConnectFailed:
            await ensure(self._place)
            return AsyncSocket(self._place.socket)

    def give(self, socket: AsyncSocket) -> None:
        """Keep a connection for the next request."""
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(socket)
        else:
            socket.close()

    async def aclose(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()


class AsyncUnixStream:
    """An answer whose body is read as it comes. Its connection is used again if all of it was read."""

    def __init__(
        self,
        transport: AsyncUnixTransport,
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

    async def __aenter__(self) -> AsyncUnixStream:
        self._socket = await self._transport.take()
        try:
            await self._begin()
        except BaseException:
            self._socket.close()
            raise
        return self

    async def _begin(self) -> None:
        try:
            await self._send()
        except TransportFailed as e:
            try:  # a server that takes no more may have said why
                await self._receive_head()
            except TransportFailed:
                raise e from None
            self._body.reusable = False
        else:
            await self._receive_head()

    async def _send(self) -> None:
        content = self._content or b""
        if len(content) <= TOGETHER_BYTES:
            await self._socket.send(self._request + content, self._timeout)
        else:
            await self._socket.send(self._request, self._timeout)
            await self._socket.send(content, self._timeout)

    async def _receive_head(self) -> None:
        head = Head()
        rest: bytes | None = None
        while rest is None:
            data = await self._socket.receive(self._timeout)
            if not data:
                raise TransportFailed("the connection ended before the answer")
            rest = head.feed(data)
        self.status, self.headers = head.status, head.headers
        self._body = Body(head)
        self._rest = self._body.feed(rest) if rest else b""

    async def read(self) -> bytes:
        """Return what came next of the body; nothing at its end."""
        piece, self._rest = self._rest, b""
        while not piece and not self._body.done:
            piece = self._body.feed(await self._socket.receive(self._timeout))
        return piece

    async def __aexit__(self, *_: object) -> None:
        if self._body.done and self._body.reusable:
            self._transport.give(self._socket)
        else:
            self._socket.close()
