"""Tools for models: those of the Model Context Protocol, as functions with JSON schemas."""

from __future__ import annotations

import os
from contextlib import suppress

from .._errors import ProblemError
from .._results import ToolResult
from .._tools import (
    answer_of,
    as_anthropic,
    as_openai,
    read_arguments,
    select,
    takes,
    without_secrets,
)
from .turns import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from .. import _types as types
    from .client import Spool

SESSION_IDLE_MS = 3_600_000


class Tools:
    """A few tools with which a model runs commands and Python, and reads what they wrote.

    ``names`` are the tools to offer; all by default. Commands start in ``cwd`` with the
    variables ``env``; with a local server these are the directory and the environment of this
    program, without variables whose names look like secrets. ``kernel`` is the interpreter of
    the tool python. ``budget`` bounds the characters of a result.
    """

    def __init__(
        self,
        spool: Spool,
        *,
        names: Iterable[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        kernel: Kernel | None = None,
        budget: int | None = None,
    ) -> None:
        self.list = select(names)
        self._spool = spool
        self._cwd = None if cwd is None else os.path.abspath(cwd) if spool.is_local else os.fspath(cwd)
        self._env = env
        self._kernel = kernel
        self._budget = budget
        self._id = os.urandom(8).hex()
        self._sessions: dict[str, list[Kernel]] = {}

    def as_openai(self) -> list[dict[str, Any]]:
        """Return the tools as OpenAI's chat completions take them."""
        return as_openai(self.list)

    def as_anthropic(self) -> list[dict[str, Any]]:
        """Return the tools as Anthropic's messages take them."""
        return as_anthropic(self.list)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return each tool as a function of its arguments, for frameworks that take functions."""
        return {tool["name"]: self._function(tool) for tool in self.list}

    def _function(self, tool: dict[str, Any]) -> Callable[..., Any]:
        def function(**arguments: Any) -> str:
            return (self.call(tool["name"], arguments)).text

        function.__name__ = function.__qualname__ = tool["name"]
        function.__doc__ = tool["description"]
        return function

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolResult:
        """Call a tool with the arguments that a model gave, as JSON or decoded.

        What the model did wrong, and what did not work, is in the result, with ``is_error``:
        the model reads it. A call that is cut is sent again and done once. If the server does not
        come back, it raises ConnectionLost; the run goes on.
        """
        tool = next((t for t in self.list if t["name"] == name), None)
        if tool is None:
            names = ", ".join(t["name"] for t in self.list)
            return ToolResult(f"there is no tool {name}: use {names}", is_error=True)
        try:
            given = read_arguments(arguments)
        except ValueError as e:
            return ToolResult(f"the arguments are no JSON object: {e}", is_error=True)
        self._complete(tool, given)
        params = {"name": name, "arguments": given}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        r = self._spool.http.send("POST", "/mcp", request, accept="application/json, text/event-stream")
        return ToolResult.of(answer_of(r.content))

    def _complete(self, tool: dict[str, Any], given: dict[str, Any]) -> None:
        """Add what the model did not say, or must not decide."""
        name = tool["name"]
        if takes(tool, "id"):
            given.setdefault("id", os.urandom(13).hex())  # so that it is done once
        if self._budget is not None and takes(tool, "budget"):
            asked = given.get("budget", self._budget)
            given["budget"] = min(asked, self._budget) if isinstance(asked, int) else asked
        cwd = self._directory()
        starts = name == "run_command" or (name == "ask_agent" and "run" not in given)
        if cwd is not None and starts and isinstance(given.get("cwd", ""), str):
            given["cwd"] = os.path.join(cwd, given.get("cwd", ""))
        if name == "run_command":
            env = self._variables()
            if env is not None and isinstance(given.get("env", {}), dict):
                given["env"] = {**env, **given.get("env", {})}
        elif name == "python" and not given.get("isolated"):
            session = self._session(str(given.get("session", "default")))
            if session is not None:
                given["session"] = session
        elif name == "send_input" and "after" not in given and isinstance(given.get("run"), str):
            # A call that is repeated shows what the first one would have.
            with suppress(ProblemError):  # which the model reads
                given["after"] = (self._spool.find(given["run"])).latest["last"]

    def _directory(self) -> str | None:
        return os.getcwd() if self._cwd is None and self._spool.is_local else self._cwd

    def _variables(self) -> dict[str, str] | None:
        if self._env is not None:
            return dict(self._env)
        return without_secrets(os.environ) if self._spool.is_local else None

    def _session(self, name: str) -> str | None:
        """Return the interpreter of a session, started if need be, or None if the server has it."""
        if self._kernel is not None and name == "default":
            return self._kernel.id
        cwd, env = self._directory(), self._variables()
        if cwd is None and env is None:
            return None
        kernels = self._sessions.setdefault(name, [])
        if not kernels or (kernels[-1].info())["state"] != "running":
            import hashlib

            # Calls at the same time choose the same id, so that one interpreter starts.
            id = hashlib.sha256(f"{self._id} {len(kernels)} {name}".encode()).hexdigest()[:26]
            limits: types.Limits = {"idle_ms": SESSION_IDLE_MS}
            kernel = self._spool.kernel(id=id, cwd=cwd, env=env, limits=limits, input="ask")
            if not kernels or kernels[-1].id != id:
                kernels.append(kernel)
        return kernels[-1].id

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the interpreters that the tools started. Commands go on."""
        for kernels in self._sessions.values():
            kernels[-1].stop()
        self._sessions.clear()
