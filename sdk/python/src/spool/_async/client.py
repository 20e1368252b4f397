"""The server: starting, finding and listing runs."""

from __future__ import annotations

import os

from .http import AsyncHTTP, quote
from .run import AsyncRun, send_answer
from .tools import AsyncTools
from .turns import AsyncAgent, AsyncKernel
from .watch import asks, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Any

    from .. import _types as types
    from .._results import Ask
    from .transport import AsyncTransport
    from .turns import Answerer, Tool

RECONNECT = 30.0


class AsyncSpool:
    """A Spool server.

    ``AsyncSpool(url, token)`` talks to a server somewhere; ``await AsyncSpool.local()`` to the one of this
    user, which it starts if there is none. Connections that are lost are made again for
    ``reconnect`` seconds, and nobody has to know.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        reconnect: float = RECONNECT,
    ) -> None:
        url = url or os.environ.get("SPOOL_URL", "http://127.0.0.1:7766")
        token = token or os.environ.get("SPOOL_TOKEN")
        from .remote import AsyncRemoteTransport

        self._begin(AsyncRemoteTransport(url, token), reconnect)

    def _begin(self, transport: AsyncTransport, reconnect: float) -> None:
        self.http = AsyncHTTP(transport, reconnect)
        self.is_local = False
        self.tools = AsyncTools(self)

    @classmethod
    async def local(cls, *, state: str | None = None, program: str | None = None) -> AsyncSpool:
        """Return the server of this user, and start it if it does not run.

        ``state`` is the directory of the logs, and ``program`` the spool program; both have the
        usual defaults. Only this user can reach the server.
        """
        from .._local import Place
        from .unix import AsyncUnixTransport

        transport = AsyncUnixTransport(Place(state, program))
        transport.give(await transport.take())  # there is a server, and a connection to it
        spool = cls.__new__(cls)
        spool._begin(transport, RECONNECT)
        spool.is_local = True
        return spool

    async def __aenter__(self) -> AsyncSpool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Runs go on."""
        await self.http.aclose()

    async def server(self) -> types.ServerInfo:
        """Describe the server, and who asks."""
        info: types.ServerInfo = await self.http.get("/v1/server")
        return info

    async def start(self, spec: types.SpecRequest) -> types.Info:
        """Start what a spec says and describe the run. It starts once, however often the request must be sent."""
        spec.setdefault("id", new_id())
        if self.is_local:
            spec.setdefault("cwd", os.getcwd())
            if "env" not in spec and "env_policy" not in spec:
                spec["env"] = dict(os.environ)
        elif "env" not in spec:
            spec.setdefault("env_policy", {})
        info: types.Info = await self.http.post("/v1/runs", spec)
        return info

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        tty: types.Size | None = None,
        stdin: bool = False,
        timeout: float | None = None,
        limits: types.Limits | None = None,
        isolation: types.Isolation | None = None,
        workspace: types.Workspace | None = None,
        id: str | None = None,
    ) -> AsyncRun:
        """Start a command and return at once. A string is a line for ``sh -c``.

        ``timeout`` ends the command after so many seconds. ``env`` is the whole environment; by
        default it is this program's with a local server, and the server's otherwise.
        """
        spec: types.SpecRequest = {"argv": ["sh", "-c", argv] if isinstance(argv, str) else list(argv)}
        if tty is not None:
            spec["tty"] = tty
        if stdin:
            spec["stdin"] = True
        common(spec, name, cwd, env, labels, limits, isolation, workspace, id)
        if timeout is not None:
            spec["limits"] = {**spec.get("limits", {}), "wall_ms": round(timeout * 1000)}
        return AsyncRun(self, await self.start(spec))

    async def kernel(
        self,
        *,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: types.Limits | None = None,
        isolation: types.Isolation | None = None,
        workspace: types.Workspace | None = None,
        interpreter: str | None = None,
        tools: Mapping[str, Tool] | None = None,
        answer: Answerer | None = None,
        id: str | None = None,
        **config: Any,
    ) -> AsyncKernel:
        """Start a Python interpreter that keeps its state.

        ``tools`` are functions that cells call as ``tool.NAME(key=value)``; ``answer`` gets what
        ``input()`` asks, and returns the line.
        """
        if interpreter is not None:
            config["interpreter"] = interpreter
        if tools:
            config["tools"] = list(tools)
        if answer is not None:
            config.setdefault("input", "ask")
        spec: types.SpecRequest = {"engine": "kernel", "config": config}
        common(spec, name, cwd, env, labels, limits, isolation, workspace, id)
        return AsyncKernel(self, await self.start(spec), answer, dict(tools or {}))

    async def box(
        self,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: types.Limits | None = None,
        tools: Mapping[str, Tool] | None = None,
        answer: Answerer | None = None,
        id: str | None = None,
        **config: Any,
    ) -> AsyncKernel:
        """Start Python in a sandbox that reaches nothing but what is configured."""
        spec: types.SpecRequest = {"engine": "sandbox", "config": config, "cwd": "/"}
        common(spec, name, None, env or {}, labels, limits, None, None, id)
        return AsyncKernel(self, await self.start(spec), answer, dict(tools or {}))

    async def agent(
        self,
        agent: str,
        *,
        approve: Answerer | None = None,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: types.Limits | None = None,
        isolation: types.Isolation | None = None,
        workspace: types.Workspace | None = None,
        model: str | None = None,
        id: str | None = None,
        **config: Any,
    ) -> AsyncAgent:
        """Start a coding agent, such as codex or claude.

        ``approve`` gets each question of the agent and returns True, False, an option, or None
        to leave it to somebody else.
        """
        if model is not None:
            config["model"] = model
        spec: types.SpecRequest = {"engine": "agent", "config": {"agent": agent, **config}}
        common(spec, name, cwd, env, labels, limits, isolation, workspace, id)
        return AsyncAgent(self, await self.start(spec), approve, {})

    async def get(self, id: str) -> AsyncRun:
        """Return the run with an id."""
        return self._handle(await self.http.get(f"/v1/runs/{quote(id)}"))

    async def find(self, name: str) -> AsyncRun:
        """Return the run with a name, or with an id that begins so."""
        r = await self.http.send("GET", f"/v1/find/{quote(name)}")
        return self._handle(await self.http.get(r.headers["location"]))

    async def runs(
        self,
        *,
        live: bool | None = None,
        waiting: bool | None = None,
        state: str | None = None,
        engine: str | None = None,
        name: str | None = None,
        label: str | tuple[str, ...] | None = None,
        prefix: str | None = None,
    ) -> AsyncIterator[AsyncRun]:
        """Yield runs, newest first. ``label`` is NAME:VALUE, or NAME; with several, a run has all of them."""
        query = selection(live, waiting, state, engine, name, label, prefix)
        cursor: str | None = None
        while True:
            page: types.RunList = await self.http.get("/v1/runs", **query, cursor=cursor)
            for info in page["runs"]:
                yield self._handle(info)
            cursor = page.get("next")
            if not cursor:
                return

    async def count(
        self,
        *,
        live: bool | None = None,
        waiting: bool | None = None,
        state: str | None = None,
        engine: str | None = None,
        name: str | None = None,
        label: str | tuple[str, ...] | None = None,
        prefix: str | None = None,
    ) -> dict[str, int]:
        """Return how many runs there are in each state."""
        query = selection(live, waiting, state, engine, name, label, prefix)
        found: types.RunCounts = await self.http.get("/v1/count", **query)
        return found["counts"]

    async def watch(
        self,
        *,
        live: bool | None = None,
        waiting: bool | None = None,
        state: str | None = None,
        engine: str | None = None,
        name: str | None = None,
        label: str | tuple[str, ...] | None = None,
        prefix: str | None = None,
    ) -> AsyncIterator[AsyncRun]:
        """Yield runs, and then each that changes, with its description in ``latest``, without an end.

        A run that the query does not select any more comes a last time. Changes that follow each
        other closely, or that happen while the connection is cut, are one.
        """
        query = selection(live, waiting, state, engine, name, label, prefix)
        async for info in watch(self.http, query):
            yield self._handle(info)

    async def asks(
        self, *, follow: bool = False, run: str | None = None, kind: str | None = None
    ) -> AsyncIterator[Ask]:
        """Yield what runs ask and nobody has answered, the oldest first.

        With ``follow`` it goes on with what they ask from now on, without an end.
        """
        async for ask in asks(self.http, follow, run, kind):
            yield ask

    async def answer(self, ask: Ask, data: Any = None, *, error: str | None = None, retype: str = "") -> None:
        """Answer an ask: True and False allow and deny. The first answer counts; another one raises NotAsked.

        ``retype`` is what was typed again to allow what is dangerous; see ``Ask.retype``.
        """
        await send_answer(self.http, f"/v1/runs/{ask.run}", ask, data, error, retype)

    def _handle(self, info: types.Info) -> AsyncRun:
        if info["engine"] in ("kernel", "sandbox"):
            return AsyncKernel(self, info, None, {})
        if info["engine"] == "agent":
            return AsyncAgent(self, info, None, {})
        return AsyncRun(self, info)


def selection(
    live: bool | None,
    waiting: bool | None,
    state: str | None,
    engine: str | None,
    name: str | None,
    label: str | tuple[str, ...] | None,
    prefix: str | None,
) -> dict[str, Any]:
    """Return the query that selects runs."""
    query: dict[str, Any] = {"state": state, "engine": engine, "name": name, "label": label, "prefix": prefix}
    if live is not None:
        query["live"] = int(live)
    if waiting is not None:
        query["waiting"] = int(waiting)
    return {name: value for name, value in query.items() if value is not None}


def new_id() -> str:
    """Return an id for a run."""
    return os.urandom(13).hex()


def common(
    spec: types.SpecRequest,
    name: str | None,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    labels: Mapping[str, str] | None,
    limits: types.Limits | None,
    isolation: types.Isolation | None,
    workspace: types.Workspace | None,
    id: str | None,
) -> None:
    """Fill in what all specs have."""
    if name is not None:
        spec["name"] = name
    if cwd is not None:
        spec["cwd"] = os.fspath(cwd)
    if env is not None:
        spec["env"] = dict(env)
    if labels is not None:
        spec["labels"] = dict(labels)
    if limits is not None:
        spec["limits"] = limits
    if isolation is not None:
        spec["isolation"] = isolation
    if workspace is not None:
        spec["workspace"] = workspace
    if id is not None:
        spec["id"] = id
