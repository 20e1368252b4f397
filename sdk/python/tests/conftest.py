from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blocking import Blocking, Loop
from cutting import CuttingProxy

import spool


def end(state: str) -> None:
    """End the server and the keeper of a state directory, with all runs, and wait for it."""
    for _ in range(600):
        found = subprocess.run(
            ["pgrep", "-f", f"(serve --state|keeper-role -state) {state} "], capture_output=True, text=True, check=False
        )
        pids = [int(pid) for pid in found.stdout.split()]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        time.sleep(0.05)
    raise TimeoutError(f"processes of {state} do not end: {pids}")


class Server:
    """The real server, in a process of its own."""

    def __init__(self, state: Path, program: str) -> None:
        self.state = state
        self.program = program
        self.listen = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.program, "serve", "--state", str(self.state), "--listen", self.listen],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().split("#")[0].rstrip("/")
        assert self.url.startswith("http://"), self.url
        self.host, port = self.url.removeprefix("http://").split(":")
        self.port = int(port)
        self.token = (self.state / "server-token").read_text().strip()

    def restart(self) -> None:
        """Kill the server and start it again at its address. Runs go on."""
        self.process.kill()
        self.process.wait()
        self.listen = f"{self.host}:{self.port}"
        self.start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        end(str(self.state))


@pytest.fixture(scope="session")
def program() -> str:
    return os.environ["SPOOL_PROGRAM"]


@pytest.fixture(scope="session")
def server(program: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as state:
        s = Server(Path(state), program)
        yield s
        s.stop()


@pytest.fixture(params=["sync", "async"])
def direct(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    """A client of either half."""
    yield from clients(request.param, server.url, server.token)


@pytest.fixture(scope="session")
def proxies(server: Server) -> Iterator[dict[str, CuttingProxy]]:
    """A proxy for each half that cuts every connection sooner or later."""
    both = {half: CuttingProxy(server.port) for half in ("sync", "async")}
    yield both
    for proxy in both.values():
        proxy.close()


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server, proxies: dict[str, CuttingProxy]) -> Iterator[Any]:
    """A client of either half whose connections are cut."""
    proxy = proxies[request.param]
    for client in clients(request.param, proxy.url, server.token):
        client.proxy = proxy
        yield client


def surely(request: Callable[[], Any]) -> Any:
    """Repeat a request that the client does not repeat, because it may be done twice."""
    while True:
        try:
            return request()
        except spool.ConnectionLost:
            continue


def clients(half: str, url: str, token: str) -> Iterator[Any]:
    """Yield a client."""
    if half == "sync":
        with spool.Spool(url, token) as s:
            yield s
        return
    loop = Loop()
    blocking = Blocking(loop, spool.AsyncSpool(url, token))
    yield blocking
    blocking.close()
    loop.close()
