"""A run: its events, its output, its input and its end."""

from __future__ import annotations

import json
import os

from .._errors import Ended, InputClosed, NotFound, RunFailed
from .._events import Cursor, Event
from .._results import Ask, Outcome, Retyped, run_html
from .._transport import TransportFailed
from .http import HEARTBEAT_MS, HTTP, Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .. import _types as types
    from .client import Spool

LONG_POLL_MS = 25_000
SHOWN_BYTES = 4_000
# What a control request that was repeated may find done.
ENDS: dict[str, tuple[type[Exception], ...]] = {"stop": (Ended,), "kill": (Ended,)}


class Run:
    """A handle to a run. It holds no state of the run: the log has it.

    Closing or forgetting a handle, or cancelling a call, never stops the run.
    """

    def __init__(self, spool: Spool, info: types.Info) -> None:
        self.spool = spool
        self._info = info
        self.http: HTTP = spool.http
        self.stdin = Stdin(self)

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._info["id"]

    @property
    def latest(self) -> types.Info:
        """The description of the run as it was when this program last heard of it."""
        return self._info

    @property
    def path(self) -> str:
        """The path of the run in the API."""
        return f"/v1/runs/{self.id}"

    def info(self) -> types.Info:
        """Return the description of the run as it is now."""
        self._info = self.http.get(self.path)
        return self._info

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yield every event after a cursor, history and live alike, until the log is complete.

        Each event comes once, in order, whatever happens to the connection. To go on later,
        pass the ``seq`` of the last event as ``after``.
        """
        cursor = Cursor(after)
        retry = Retry(self.http.reconnect)
        while not cursor.complete:
            cursor.begin()
            came = False
            try:
                with self.http.stream(
                    self.path + "/events",
                    "application/x-ndjson",
                    {"after": cursor.last, "heartbeat_ms": HEARTBEAT_MS},
                ) as r:
                    retry.reset()
                    while chunk := r.read():
                        for event in cursor.feed(chunk):
                            came = True
                            yield event
            except TransportFailed as e:
                retry.wait(e)
                continue
            except NotFound:
                if not cursor.gap:
                    raise
                return  # the run was removed, and the gap was its last event
            if not came and not cursor.complete:
                info = self.info()
                if info["state"] == "closed" and info["last"] <= cursor.last:
                    return

    def stream(self, *streams: str) -> Iterator[bytes]:
        """Yield the output as it comes, of all streams or of those named, until the run ends."""
        taken = 0
        retry = Retry(self.http.reconnect)
        while True:
            try:
                with self.http.stream(
                    self.path + "/output",
                    "application/octet-stream",
                    {"follow": 1, "skip_bytes": taken, "stream": streams},
                ) as r:
                    retry.reset()
                    while chunk := r.read():
                        taken += len(chunk)
                        yield chunk
                if (self.info())["state"] == "closed":
                    return
            except TransportFailed as e:
                retry.wait(e)

    def output(self, *streams: str) -> bytes:
        """Wait for the end of the run and return what it wrote."""
        return b"".join([chunk for chunk in self.stream(*streams)])

    def text(self, *streams: str) -> str:
        """Wait for the end of the run and return what it wrote, as text."""
        return (self.output(*streams)).decode(errors="replace")

    def tail(self, size: int = SHOWN_BYTES) -> str:
        """Return the end of the output as it is now."""
        r = self.http.send("GET", self.path + "/output", params={"tail_bytes": size, "ansi": "strip"})
        return r.content.decode(errors="replace")

    def transcript(self, tokens: int = 2000) -> types.Excerpt:
        """Return what matters of the output, within a budget of tokens."""
        excerpt: types.Excerpt = self.http.get(self.path + "/transcript", budget_tokens=tokens)
        return excerpt

    def search(self, text: str, *, regex: bool = False, limit: int = 100) -> list[types.Hit]:
        """Return the lines of the output that contain a text or match a pattern."""
        page: types.RunSearch = self.http.get(
            self.path + "/search", q=text, mode="regex" if regex else None, limit=limit
        )
        return page["hits"]

    def wait(self) -> Outcome:
        """Wait until the run has ended and its log is complete."""
        while True:
            self._info = self.http.get(self.path, wait_ms=LONG_POLL_MS, state="closed")
            if self._info["state"] == "closed":
                return Outcome.of(self._info)

    def check(self) -> Outcome:
        """Wait, and raise RunFailed with the end of the output if the run did not exit with 0."""
        outcome = self.wait()
        if not outcome.ok:
            what = " ".join(self._info.get("argv", [])) or self.id
            raise RunFailed(f"{what}: {outcome}\n{self.tail()}".rstrip())
        return outcome

    def control(self, op: str, **fields: Any) -> None:
        """Send a control request, such as interrupt or stop. It is done once, however often it must be sent."""
        request = {"op": op, "id": os.urandom(8).hex(), **fields}
        self.http.post(self.path + "/control", request, done=ENDS.get(op, ()))

    def interrupt(self) -> None:
        """Interrupt what runs now, as Ctrl-C does."""
        self.control("interrupt")

    def signal(self, name: str) -> None:
        """Send a signal, such as SIGUSR1."""
        self.control("signal", signal=name)

    def resize(self, rows: int, cols: int) -> None:
        """Resize the terminal of the run."""
        self.control("resize", size={"rows": rows, "cols": cols})

    def stop(self) -> None:
        """End the run and everything it started: SIGTERM, and SIGKILL after the grace time."""
        self.control("stop")

    def kill(self) -> None:
        """End the run and everything it started at once."""
        self.control("kill")

    def answer(self, ask: int | Ask, data: Any = None, *, error: str | None = None, retype: str = "") -> None:
        """Answer an ask. The first answer counts; another one raises NotAsked.

        ``retype`` is what was typed again to allow what is dangerous; see ``Ask.retype``.
        """
        send_answer(self.http, self.path, ask, data, error, retype)

    def blob(self, digest: str) -> bytes:
        """Return a large value that an event refers to."""
        return (self.http.send("GET", f"{self.path}/blobs/{digest}")).content

    def changes(self) -> list[types.Change]:
        """Return what the run changed in its workspace."""
        page: types.ChangePage = self.http.get(self.path + "/changes", patch=1)
        return page["changes"]

    def apply(self, paths: Sequence[str] = ()) -> None:
        """Take the changes of the run over into its directory, all or those of some paths.

        What was taken over is no change any more, so that a request whose answer was lost is repeated.
        """
        request: types.ApplyRequest = {"paths": list(paths)} if paths else {}
        done: tuple[type[Exception], ...] = ()
        if paths:  # there are such changes; if a repeated request does not find them, they were taken over
            self.http.post(self.path + "/apply", {**request, "dry": True}, patient=False)
            done = (NotFound,)
        self.http.post(self.path + "/apply", request, patient=False, done=done)

    def discard(self) -> None:
        """Delete the changes of the run, which must have ended."""
        self.http.send("POST", self.path + "/discard", patient=False, done=(NotFound,))

    def rename(self, name: str) -> types.Info:
        """Give the run another name, and return its description."""
        body: types.RenameRequest = {"name": name}
        r = self.http.send("PATCH", self.path, body)
        self._info = json.loads(r.content)
        return self._info

    def delete(self) -> None:
        """Delete the run, which must have ended."""
        self.http.send("DELETE", self.path, done=(NotFound,))

    def _repr_html_(self) -> str:
        """Return the run and the end of its output as HTML, for a notebook."""
        return run_html(self.info(), self.tail())

    def __repr__(self) -> str:
        what = " ".join(self._info.get("argv", [])) or self._info["engine"]
        state = str(Outcome.of(self._info)) if "outcome" in self._info else self._info["state"]
        return f"<{type(self).__name__} {self.id} {what!r} {state}>"


def send_answer(http: HTTP, path: str, ask: int | Ask, data: Any, error: str | None, retype: str) -> None:
    """Answer an ask of the run at a path."""
    seq = ask
    if isinstance(data, Retyped):
        data, retype = data.data, data.text
    if isinstance(ask, Ask):
        seq, data = ask.seq, ask.choice(data)
    body: types.AnswerRequest = {"id": os.urandom(8).hex()}
    if error is not None:
        body["error"] = {"message": error}
    else:
        body["data"] = data
    if retype:
        body["retype"] = retype
    http.post(f"{path}/asks/{seq}", body)


class Stdin:
    """The standard input of a run. What is written arrives once, in order."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def write(self, data: bytes | str) -> None:
        """Write bytes or text."""
        self._send(data.encode() if isinstance(data, str) else data, {})

    def close(self) -> None:
        """Close it: the program reads end of file."""
        # A program whose input has ended may have, too, before the request is repeated.
        self._send(b"", {"eof": 1}, (InputClosed, Ended))

    def _send(self, data: bytes, params: dict[str, Any], done: tuple[type[Exception], ...] = ()) -> None:
        params["id"] = os.urandom(8).hex()
        self._run.http.send("POST", self._run.path + "/input", content=data, params=params, done=done)
