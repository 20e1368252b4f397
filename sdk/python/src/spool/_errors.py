"""Errors, typed from the codes of the server's problems."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SpoolError(Exception):
    """What this package raises."""


class ConnectionLost(SpoolError):
    """The server could not be reached, and did not come back in time."""


class Closed(SpoolError):
    """The client was closed before the call."""


class LogError(SpoolError):
    """The server sent a log that is not in order."""


class RunFailed(SpoolError):
    """A run or a turn that had to succeed did not."""


class NoProgram(SpoolError):
    """There is no spool program on this machine."""


class ProblemError(SpoolError):
    """The server refused a request.

    ``code`` is for programs, ``hint`` for people; ``problem`` is all that the server said.
    """

    def __init__(self, problem: dict[str, Any]) -> None:
        self.problem = problem
        self.status: int = problem.get("status", 0)
        self.code: str = problem.get("code", "")
        self.hint: str = problem.get("hint", "")
        text = problem.get("detail") or problem.get("title") or f"status {self.status}"
        if self.hint:
            text += f"\nhint: {self.hint}"
        super().__init__(text)


class InvalidRequest(ProblemError):
    """The request is wrong: ``invalid``, ``unknown_member``, ``bad_cursor``, ``bad_json``."""


class Unauthenticated(ProblemError):
    """There is no token, or it is not valid any more."""


class Forbidden(ProblemError):
    """The token may not do this."""


class NotFound(ProblemError):
    """There is no such run, event or turn, or the token may not see it."""


class Conflict(ProblemError):
    """The run is not in a state for this."""


class Ambiguous(Conflict):
    """Several runs have this name."""


class Exists(Conflict):
    """Another run has this id or name."""


class Ended(Conflict):
    """The run has ended."""


class InputClosed(Conflict):
    """The run takes no more input."""


class NotAsked(Conflict):
    """The ask is not open: ``problem["by"]`` says who answered it."""


class NotRetyped(ProblemError):
    """What is dangerous must be typed again to be allowed: ``answer(ask, True, retype=ask.retype)``."""


class StartFailed(ProblemError):
    """The run could not be started."""


class ProgramNotFound(StartFailed):
    """There is no such program."""


class Unsupported(ProblemError):
    """The server or the engine cannot do this."""


class TooMany(ProblemError):
    """Too many requests, runs or streams; try again later."""


class Unavailable(ProblemError):
    """The server cannot answer now."""


_BY_CODE: dict[str, type[ProblemError]] = {
    "ambiguous": Ambiguous,
    "exists": Exists,
    "ended": Ended,
    "input_closed": InputClosed,
    "not_asked": NotAsked,
    "not_retyped": NotRetyped,
    "start_not_found": ProgramNotFound,
    "unsupported": Unsupported,
}

_BY_STATUS: dict[int, type[ProblemError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    429: TooMany,
    503: Unavailable,
}


def problem_error(status: int, body: Any) -> ProblemError:
    """Return the error for an answer that is no success."""
    problem: dict[str, Any] = {"status": status}
    members: dict[str, Any] = body
    if isinstance(body, dict):
        problem.update(members)
    else:
        problem["title"] = str(body)[:1000]
    code = str(problem.get("code", ""))
    kind = _BY_CODE.get(code)
    if kind is None:
        kind = StartFailed if code.startswith("start_") else _BY_STATUS.get(status, ProblemError)
    return kind(problem)
