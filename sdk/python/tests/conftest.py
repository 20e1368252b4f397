from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
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
def local(program: str) -> Iterator[str]:
    """The state directory of a server of this user."""
    with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as state:
        spool.Spool.local(state=state, program=program).close()
        yield state
        end(state)


@pytest.fixture(scope="session")
def proxies(server: Server, local: str) -> Iterator[dict[str, CuttingProxy]]:
    """A proxy for each half and way that cuts every connection sooner or later."""
    all = {half: CuttingProxy(server.port) for half in ("sync", "async")}
    for half in ("local sync", "local async"):
        directory = f"{local}/{half}"
        os.mkdir(directory)
        all[half] = CuttingProxy(sockets=(directory + "/api.sock", local + "/api.sock"))
    yield all
    for proxy in all.values():
        proxy.close()


# The halves are made of one source. So each does everything over one way, and what connections
# have to do with over both.
@pytest.fixture(params=["sync", "local async"])
def client(
    request: pytest.FixtureRequest, server: Server, local: str, proxies: dict[str, CuttingProxy]
) -> Iterator[Any]:
    """A client of either half whose connections are cut."""
    yield from cut_clients(request.param, server, local, proxies[request.param])


@pytest.fixture(params=["sync", "async", "local sync", "local async"])
def any_client(
    request: pytest.FixtureRequest, server: Server, local: str, proxies: dict[str, CuttingProxy]
) -> Iterator[Any]:
    """A client of either half and way whose connections are cut."""
    yield from cut_clients(request.param, server, local, proxies[request.param])


def cut_clients(half: str, server: Server, local: str, proxy: CuttingProxy) -> Iterator[Any]:
    """Yield a client of a proxy."""
    way, _, rest = half.rpartition(" ")
    found = local_clients(rest, f"{local}/{half}") if way else clients(half, proxy.url, server.token)
    for client in found:
        client.proxy = proxy
        yield client


def unique() -> str:
    """Return a word that no other test uses, for ids, names and labels."""
    return f"t{random.getrandbits(60):x}"


def missing(what: str) -> None:
    """End a test whose requirement is missing on this machine; CI must not skip it."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


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


def local_clients(half: str, state: str) -> Iterator[Any]:
    """Yield a client of the server of this user."""
    if half == "sync":
        with spool.Spool.local(state=state) as s:
            yield s
        return
    loop = Loop()
    blocking = Blocking(loop, loop.run(spool.AsyncSpool.local(state=state)))
    yield blocking
    blocking.close()
    loop.close()
