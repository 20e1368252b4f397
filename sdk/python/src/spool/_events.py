"""Events of a log, and the rule by which a reader sees each of them once."""

from __future__ import annotations

import binascii
import json

from ._errors import LogError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


class Event:
    """One event of a run's log."""

    __slots__ = ("_fields", "kind", "seq")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self.seq: int = fields["seq"]
        self.kind: str = fields["kind"]

    @property
    def run(self) -> str:
        """The id of the run."""
        return str(self._fields["run"])

    @property
    def time(self) -> datetime:
        """When it happened."""
        from datetime import datetime

        text = self._fields["time"].replace("Z", "+00:00")
        head, dot, rest = text.partition(".")
        if dot:  # Python 3.10 takes three or six digits only
            digits = rest[: len(rest) - 6]
            text = f"{head}.{digits[:6]:0<6}{rest[len(digits) :]}"
        return datetime.fromisoformat(text)

    @property
    def turn(self) -> int:
        """The seq of the input that began the turn it belongs to, or 0."""
        return int(self._fields.get("turn", 0))

    @property
    def stream(self) -> str:
        """Where output came from: stdout, stderr or pty."""
        return str(self._fields.get("stream", ""))

    @property
    def data(self) -> Any:
        """What the kind says."""
        return self._fields.get("data")

    @property
    def raw(self) -> bytes:
        """The bytes of output."""
        text = self._fields.get("text")
        if text is not None:
            return str(text).encode()
        return binascii.a2b_base64(self._fields.get("base64", ""))

    @property
    def text(self) -> str:
        """The bytes as text."""
        text = self._fields.get("text")
        return str(text) if text is not None else self.raw.decode(errors="replace")

    def to_dict(self) -> dict[str, Any]:
        """Return the event as the server sent it."""
        return dict(self._fields)

    def __repr__(self) -> str:
        what = self.text if self.kind == "output" else self.data
        shown = "" if what is None else f" {what!r}"
        return f"<{self.seq} {self.kind}{shown if len(shown) < 80 else shown[:77] + '...'}>"


class Cursor:
    """Takes the lines of a stream of events and gives out each event once, in order.

    It outlives the connections that the lines come from: ``last`` is where the next one begins.
    """

    def __init__(self, after: int) -> None:
        self.last = after
        self.complete = False
        self.gap = False  # whether the last event says that others are gone
        self._rest = b""

    def begin(self) -> None:
        """Forget the unfinished line of a connection that was cut."""
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that a chunk completes."""
        lines = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        self._rest = lines.pop()
        whole = [line for line in lines if line]
        if not whole:
            return []
        events: list[Event] = []
        for fields in json.loads(b"[" + b",".join(whole) + b"]"):
            event = Event(fields)
            if event.seq != self.last + 1 and not self._jumps(event):
                continue
            if event.seq:
                self.last = event.seq
            if event.kind == "closed" or event.seq == 0:
                self.complete = True
            self.gap = event.kind == "truncated"
            events.append(event)
        return events

    def _jumps(self, event: Event) -> bool:
        """Report whether to take an event that is not the next, and refuse what cannot be."""
        if event.seq == 0 or (event.kind == "truncated" and event.seq > self.last):
            return True
        if event.seq <= self.last:
            return False
        raise LogError(f"event {event.seq} of run {event.run} came after event {self.last}")


class Frames:
    """Takes the chunks of a stream of server-sent events and gives out whole ones: name and data."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[tuple[str, Any]]:
        """Return the events that a chunk completes."""
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        frames: list[tuple[str, Any]] = []
        for block in blocks:
            name, data = "message", b""
            for line in block.split(b"\n"):
                if line.startswith(b"event: "):
                    name = line[7:].decode()
                elif line.startswith(b"data: "):
                    data += line[6:]
            if data:  # otherwise it is a comment
                frames.append((name, json.loads(data)))
        return frames
