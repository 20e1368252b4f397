"""The server of this user: where it is, and how it is started."""

from __future__ import annotations

import os
import socket

from ._errors import ConnectionLost, NoProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

START_SECONDS = 20.0
# A server that nobody uses ends; runs go on without it.
EXIT_IDLE = "10m"
POLL_SECONDS = 0.005


class Place:
    """Where the server of this user listens."""

    def __init__(self, state: str | None, program: str | None) -> None:
        self.state = os.path.normpath(state or os.environ.get("SPOOL_STATE") or default_state())
        self.program = program
        self.socket = os.path.join(self.state, "api.sock")

    def answers(self) -> bool:
        """Report whether a server listens."""
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(self.socket)
            except OSError:
                return False
        return True

    def start(self) -> Starting:
        """Start a server that outlives this program."""
        import subprocess
        import tempfile

        os.makedirs(self.state, mode=0o700, exist_ok=True)
        program = self.program or find_program()
        fd, log = tempfile.mkstemp(prefix="spool-serve-")
        try:
            with open(fd) as stderr:
                process = subprocess.Popen(
                    [
                        program,
                        "serve",
                        "--state",
                        self.state,
                        "--listen",
                        "unix:" + self.socket,
                        "--exit-idle",
                        EXIT_IDLE,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                    cwd="/",
                )
        except OSError:  # the program cannot be executed
            os.unlink(log)
            raise
        return Starting(process, log)


class Starting:
    """A server that was started and may not listen yet."""

    def __init__(self, process: Popen[bytes], log: str) -> None:
        self.process = process
        self.log = log

    def failure(self) -> Exception:
        """Return why it does not listen yet. Raise if it has ended and no other server came."""
        code = self.process.poll()
        if code is None:
            return ConnectionLost("spool serve does not listen yet")
        with open(self.log, errors="replace") as f:
            said = f.read(2000).strip()
        if "in use" in said:  # another program started one
            return ConnectionLost(said)
        raise ConnectionLost(f"spool serve ended with {code}: {said}")

    def done(self) -> None:
        """Forget what the server said when it started."""
        os.unlink(self.log)


def default_state() -> str:
    """Return the state directory of this user, as the spool program has it."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "spool")


def find_program() -> str:
    """Return the spool program: of this package, or in PATH."""
    carried = os.path.join(os.path.dirname(__file__), "bin", "spool")
    if os.path.exists(carried):
        return carried
    import shutil

    found = os.environ.get("SPOOL_PROGRAM") or shutil.which("spool")
    if found:
        return found
    raise NoProgram(
        "there is no spool in PATH\nhint: install the package spool-run with its program, or set SPOOL_PROGRAM"
    )
