"""Spool: run commands, Python and coding agents; get one ordered, replayable log of each.

>>> from spool import Spool
>>> spool = Spool.local()
>>> run = spool.run(["make", "test"])
>>> for event in run.events():
...     print(event)
"""

from __future__ import annotations

from ._errors import (
    Ambiguous,
    Closed,
    Conflict,
    ConnectionLost,
    Ended,
    Exists,
    Forbidden,
    InputClosed,
    InvalidRequest,
    LogError,
    NoProgram,
    NotAsked,
    NotFound,
    NotRetyped,
    ProblemError,
    ProgramNotFound,
    RunFailed,
    SpoolError,
    StartFailed,
    TooMany,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from ._events import Event
from ._results import Answer, Ask, Cell, CellError, Image, Outcome, Retyped, ToolResult
from ._sync.client import Spool
from ._sync.run import Run, Stdin
from ._sync.tools import Tools
from ._sync.turns import Agent, Kernel, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._async.client import AsyncSpool
    from ._async.run import AsyncRun, AsyncStdin
    from ._async.tools import AsyncTools
    from ._async.turns import AsyncAgent, AsyncKernel, AsyncTurn
else:
    # The asynchronous half, which needs asyncio, is imported when it is used.
    _ASYNC = {
        "AsyncSpool": "client",
        "AsyncRun": "run",
        "AsyncStdin": "run",
        "AsyncTools": "tools",
        "AsyncAgent": "turns",
        "AsyncKernel": "turns",
        "AsyncTurn": "turns",
    }

    def __getattr__(name: str) -> Any:
        if name not in _ASYNC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"._async.{_ASYNC[name]}", __name__), name)
        globals()[name] = value
        return value


__all__ = [
    "Agent",
    "Ambiguous",
    "Answer",
    "Ask",
    "AsyncAgent",
    "AsyncKernel",
    "AsyncRun",
    "AsyncSpool",
    "AsyncStdin",
    "AsyncTools",
    "AsyncTurn",
    "Cell",
    "CellError",
    "Closed",
    "Conflict",
    "ConnectionLost",
    "Ended",
    "Event",
    "Exists",
    "Forbidden",
    "Image",
    "InputClosed",
    "InvalidRequest",
    "Kernel",
    "LogError",
    "NoProgram",
    "NotAsked",
    "NotFound",
    "NotRetyped",
    "Outcome",
    "ProblemError",
    "ProgramNotFound",
    "Retyped",
    "Run",
    "RunFailed",
    "Spool",
    "SpoolError",
    "StartFailed",
    "Stdin",
    "TooMany",
    "ToolResult",
    "Tools",
    "Turn",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
]
