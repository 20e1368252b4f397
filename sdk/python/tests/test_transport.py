"""The transport of the local server: what it loads, what it takes, what it refuses."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import spool
from spool._local import Place
from spool._transport import ConnectFailed, TransportFailed
from spool._wire import HEAD_BYTES, LINE_BYTES, Body, Head, encode_head

SLOW = ("httpx", "asyncio", "typing", "dataclasses", "inspect", "http.client", "email", "subprocess", "ssl", "secrets")


def test_a_local_client_loads_no_slow_module(local: str) -> None:
    program = """
import sys
import spool
with spool.Spool.local(state=sys.argv[1]) as s:
    assert s.run(["echo", "x"]).text() == "x\\n"
    assert s.run(["true"]).check().ok
print(*sorted(sys.modules))
"""
    text = subprocess.check_output([sys.executable, "-S", "-c", program, local], text=True)
    loaded = text.split()
    assert "spool._sync.unix" in loaded
    assert [name for name in SLOW if name in loaded] == []


ANSWERS = {
    "content-length": (b"Content-Length: 5\r\n\r\nhello", True),
    "chunked": (b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\nTrailer: x\r\n\r\n", True),
    "until the end": (b"\r\nhello", False),
    "closing": (b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", False),
}


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_comes_in_any_pieces(kind: str, step: int) -> None:
    rest, reusable = ANSWERS[kind]
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nX-Name:  some text \r\n" + rest
    head = Head()
    body: Body | None = None
    out = b""
    for at in range(0, len(text), step):
        data: bytes | None = text[at : at + step]
        if body is None:
            data = head.feed(data or b"")
            if data is None:
                continue
            body = Body(head)
        if data:
            out += body.feed(data)
    assert body is not None
    if kind == "until the end":
        assert not body.done
        body.feed(b"")
    assert (out, body.done, body.reusable) == (b"hello", True, reusable)
    assert (head.status, head.headers["x-name"]) == (201, "some text")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-x\r\n\r\n", "not an answer of HTTP/1.1"),
        (b"HTTP/1.1 abc\r\n\r\n", "not an answer of HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES, "bytes of headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n", "a body of"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "more came"),
        (b"HTTP/1.1 204 No Content\r\n\r\nabc", "more came"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "ended before the answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "a chunk of"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk of"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (LINE_BYTES + 1), "before a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nabc", "more came"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "ended before the answer"),
        (b"", "ended before the answer"),
    ],
)
@pytest.mark.parametrize("half", ["sync", "async"])
def test_what_is_no_answer_is_a_lost_connection(half: str, answer: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(TransportFailed, match=why):
        request(half, tmp_path, lambda client: (client.recv(1 << 16), client.sendall(answer)))


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_silent_server_is_a_lost_connection(half: str, tmp_path: Path) -> None:
    with pytest.raises(TransportFailed, match="timed out") as e:
        request(half, tmp_path, lambda client: client.recv(1 << 16), timeout=0.05, stay=True)
    assert not isinstance(e.value, ConnectFailed)


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_server_that_takes_no_more_says_why(half: str, tmp_path: Path) -> None:
    def refuse(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
        client.close()

    answer = request(half, tmp_path, refuse, content=b"x" * (1 << 22))
    assert (answer.status, answer.content) == (413, b"no!")


def test_a_line_break_is_not_sent() -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_head("GET", "/x\r\nX: y", {}, None)
    with pytest.raises(ValueError, match="line break"):
        encode_head("GET", "/x", {"X": "a\nb"}, None)


def test_a_task_that_is_cancelled_leaves_its_connection(local: str) -> None:
    async def main() -> None:
        async with await spool.AsyncSpool.local(state=local) as s:
            run = await s.run(["cat"], stdin=True)
            waiting = [asyncio.create_task(run.wait()) for _ in range(8)]
            waiting += [asyncio.create_task(anext(run.events())) for _ in range(8)]  # type: ignore[arg-type]
            for _ in range(3):
                await run.info()  # the tasks have begun
            for task in waiting:
                task.cancel()
            assert all(
                isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*waiting, return_exceptions=True)
            )
            assert (await run.info())["state"] == "running"
            await run.stdin.aclose()
            assert (await run.wait()).ok

    asyncio.run(main())


def request(
    half: str,
    directory: Path,
    serve: Any,
    *,
    content: bytes | None = None,
    timeout: float = 60,
    stay: bool = False,
) -> Any:
    """Send a request to a server that does something else than it should, and return the answer."""
    path = directory / "api.sock"
    asked = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            with listener.accept()[0] as client:
                serve(client)
                if stay:
                    asked.wait()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            return send(half, directory, content, timeout)
        finally:
            asked.set()
            thread.join()


def send(half: str, directory: Path, content: bytes | None, timeout: float) -> Any:
    from spool._async.unix import AsyncUnixTransport
    from spool._sync.unix import UnixTransport

    place = Place(str(directory), "/bin/false")
    if half == "sync":
        return UnixTransport(place).request("POST", "/x", {}, content, timeout)
    return asyncio.run(AsyncUnixTransport(place).request("POST", "/x", {}, content, timeout))
