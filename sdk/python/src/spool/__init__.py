"""Spool: run commands, Python and coding agents; get one ordered, replayable log of each.

>>> from spool import Spool
>>> spool = Spool.local()
>>> run = spool.run(["make", "test"])
>>> for event in run.events():
...     print(event)
"""

from ._async.client import AsyncSpool
from ._async.run import AsyncRun, AsyncStdin
from ._async.tools import AsyncTools
from ._async.turns import AsyncAgent, AsyncKernel, AsyncTurn
from ._errors import (
    Ambiguous,
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
from ._results import Answer, Ask, Cell, CellError, Image, Outcome, ToolResult
from ._sync.client import Spool
from ._sync.run import Run, Stdin
from ._sync.tools import Tools
from ._sync.turns import Agent, Kernel, Turn

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
    "Outcome",
    "ProblemError",
    "ProgramNotFound",
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
