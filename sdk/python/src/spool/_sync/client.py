"""The server: starting, finding and listing runs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from .._local import Place
from .._results import Ask
from .http import HTTP
from .local import LocalTransport, ensure
from .run import Run, send_answer
from .tools import Tools
from .turns import Answerer, Agent, Kernel, Tool
from .watch import asks, watch

if TYPE_CHECKING:
    from .. import _types as types

RECONNECT = 30.0
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)


class Spool:
    """A Spool server.

    ``Spool(url, token)`` talks to a server somewhere; ``Spool.local()`` to the one of this
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
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Reading the certificates of authorities takes longer than a request.
        transport = httpx.HTTPTransport(limits=LIMITS, verify=url.startswith("https:"))
        self._begin(httpx.Client(base_url=url, headers=headers, transport=transport), reconnect)

    def _begin(self, client: httpx.Client, reconnect: float) -> None:
        self.http = HTTP(client, reconnect)
        self.is_local = False
        self.tools = Tools(self)

    @classmethod
    def local(cls, *, state: str | None = None, program: str | None = None) -> Spool:
        """Return the server of this user, and start it if it does not run.

        ``state`` is the directory of the logs, and ``program`` the spool program; both have the
        usual defaults. Only this user can reach the server.
        """
        place = Place(state, program)
        ensure(place)
        spool = cls.__new__(cls)
        transport = LocalTransport(place, LIMITS)
        spool._begin(httpx.Client(base_url="http://localhost", transport=transport), RECONNECT)
        spool.is_local = True
        return spool

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Runs go on."""
        self.http.close()

    def server(self) -> types.ServerInfo:
        """Describe the server, and who asks."""
        info: types.ServerInfo = self.http.get("/v1/server")
        return info

    def start(self, spec: types.SpecRequest) -> types.Info:
        """Start what a spec says and describe the run. It starts once, however often the request must be sent."""
        spec.setdefault("id", new_id())
        if self.is_local:
            spec.setdefault("cwd", os.getcwd())
            if "env" not in spec and "env_policy" not in spec:
                spec["env"] = dict(os.environ)
        elif "env" not in spec:
            spec.setdefault("env_policy", {})
        info: types.Info = self.http.post("/v1/runs", spec)
        return info

    def run(
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
    ) -> Run:
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
        return Run(self, self.start(spec))

    def kernel(
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
    ) -> Kernel:
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
        return Kernel(self, self.start(spec), answer, dict(tools or {}))

    def box(
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
    ) -> Kernel:
        """Start Python in a sandbox that reaches nothing but what is configured."""
        spec: types.SpecRequest = {"engine": "sandbox", "config": config, "cwd": "/"}
        common(spec, name, None, env or {}, labels, limits, None, None, id)
        return Kernel(self, self.start(spec), answer, dict(tools or {}))

    def agent(
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
    ) -> Agent:
        """Start a coding agent, such as codex or claude.

        ``approve`` gets each question of the agent and returns True, False, an option, or None
        to leave it to somebody else.
        """
        if model is not None:
            config["model"] = model
        spec: types.SpecRequest = {"engine": "agent", "config": {"agent": agent, **config}}
        common(spec, name, cwd, env, labels, limits, isolation, workspace, id)
        return Agent(self, self.start(spec), approve, {})

    def get(self, id: str) -> Run:
        """Return the run with an id."""
        return self._handle(self.http.get(f"/v1/runs/{quote(id, safe='')}"))

    def find(self, name: str) -> Run:
        """Return the run with a name, or with an id that begins so."""
        r = self.http.send("GET", f"/v1/find/{quote(name, safe='')}")
        return self._handle(self.http.get(r.headers["Location"]))

    def runs(
        self,
        *,
        live: bool | None = None,
        waiting: bool | None = None,
        engine: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> Iterator[Run]:
        """Yield runs, newest first. ``label`` is NAME:VALUE, or NAME."""
        cursor: str | None = None
        while True:
            page: types.RunList = self.http.get(
                "/v1/runs",
                live=flag(live),
                waiting=flag(waiting),
                engine=engine,
                name=name,
                label=label,
                cursor=cursor,
            )
            for info in page["runs"]:
                yield self._handle(info)
            cursor = page.get("next")
            if not cursor:
                return

    def watch(
        self,
        *,
        live: bool | None = None,
        waiting: bool | None = None,
        engine: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> Iterator[Run]:
        """Yield runs, and then each that changes, with its description in ``latest``, without an end.

        A run that the query does not select any more comes a last time. Changes that follow each
        other closely, or that happen while the connection is cut, are one.
        """
        query = {"live": flag(live), "waiting": flag(waiting), "engine": engine, "name": name, "label": label}
        for info in watch(self.http, {k: v for k, v in query.items() if v is not None}):
            yield self._handle(info)

    def asks(
        self, *, follow: bool = False, run: str | None = None, kind: str | None = None
    ) -> Iterator[Ask]:
        """Yield what runs ask and nobody has answered, the oldest first.

        With ``follow`` it goes on with what they ask from now on, without an end.
        """
        for ask in asks(self.http, follow, run, kind):
            yield ask

    def answer(self, ask: Ask, data: Any = None, *, error: str | None = None) -> None:
        """Answer an ask: True and False allow and deny. The first answer counts; another one raises NotAsked."""
        send_answer(self.http, f"/v1/runs/{ask.run}", ask, data, error)

    def _handle(self, info: types.Info) -> Run:
        if info["engine"] in ("kernel", "sandbox"):
            return Kernel(self, info, None, {})
        if info["engine"] == "agent":
            return Agent(self, info, None, {})
        return Run(self, info)


def flag(value: bool | None) -> int | None:
    """Return a boolean as a query has it."""
    return None if value is None else int(value)


def new_id() -> str:
    """Return an id for a run."""
    return secrets.token_hex(13)


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
