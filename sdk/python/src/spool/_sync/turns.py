"""Runs that take turns: kernels, sandboxes and agents."""

from __future__ import annotations

import binascii
import os

from .._errors import Ended, NotAsked
from .._events import Event
from .._results import IMAGES, Answer, Ask, Cell, CellError, Image, base64_of, blob_of
from .run import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Awaitable, Callable, Iterable
    from typing import Any

    from .. import _types as types
    from .client import Spool

    # What answers an ask: data for it, True or False to allow or deny, Retyped to allow what is
    # dangerous, or None to leave it open.
    Answerer = Callable[[Ask], Any] | Callable[[Ask], Awaitable[Any]]
    Tool = Callable[..., Any] | Callable[..., Awaitable[Any]]


class Turn:
    """A cell or a prompt that was accepted."""

    def __init__(self, run: Run, seq: int) -> None:
        self.run = run
        self.seq = seq

    def events(self) -> Iterator[Event]:
        """Yield the events of the turn until it is done, or until the run ends."""
        for event in self.run.events(self.seq):
            ended = event.kind in ("exited", "failed")
            if event.turn != self.seq and not ended:
                continue
            yield event
            if ended or event.kind == "done":
                return

    def wait(self) -> types.Done:
        """Wait until the turn is done."""
        for event in self.events():
            if event.kind == "done":
                done: types.Done = event.data
                return done
        raise ended(self.run, self.seq)

    def interrupt(self) -> None:
        """Ask the turn to end; stronger means follow."""
        self.run.control("interrupt", turn=self.seq)


class TurnRun(Run):
    """A run that takes turns, and asks while it does."""

    def __init__(self, spool: Spool, info: types.Info, answer: Answerer | None, tools: dict[str, Tool]) -> None:
        super().__init__(spool, info)
        self._answer = answer
        self._tools = tools

    def begin(self, request: types.TurnRequest) -> Turn:
        """Begin a turn. It is accepted once, however often the request must be sent."""
        request.setdefault("id", os.urandom(8).hex())
        turn: types.TurnInfo = self.http.post(self.path + "/turns", request)
        return Turn(self, turn["seq"])

    def _consider(self, event: Event) -> None:
        """Answer an ask, if there is something that answers it."""
        ask = Ask(self.id, event.seq, event.turn, event.data)
        if event.data.get("answer"):
            return  # the policy of the run has
        try:
            if ask.kind == "tool" and ask.name in self._tools:
                self._call(ask, self._tools[ask.name])
                return
            if self._answer is None or ask.kind == "tool":
                return
            data = self._answer(ask)
            if hasattr(data, "__await__"):
                data = data
            if ask.choice(data) is not None:
                self.answer(ask, data)
        except NotAsked:
            pass  # somebody else was faster, or the turn has ended

    def _call(self, ask: Ask, tool: Tool) -> None:
        try:
            value = tool(**(ask.data or {}))
            if hasattr(value, "__await__"):
                value = value
        except Exception as e:  # the cell gets it
            self.answer(ask, error=f"{type(e).__name__}: {e}")
            return
        self.answer(ask, value)


class Kernel(TurnRun):
    """A Python interpreter that keeps its state from one cell to the next."""

    def submit(self, code: str, *, timeout: float | None = None) -> Turn:
        """Send a cell and return at once; cells run one after the other."""
        cell: types.Cell = {"code": code}
        if timeout is not None:
            cell["timeout_ms"] = round(timeout * 1000)
        return self.begin({"cell": cell})

    def exec(
        self, code: str, *, timeout: float | None = None, on_output: Callable[[str], Any] | None = None
    ) -> Cell:
        """Run a cell and return what it did. ``on_output`` gets the output as it comes."""
        turn = self.submit(code, timeout=timeout)
        return self.collect(turn, code, on_output)

    def collect(self, turn: Turn, code: str = "", on_output: Callable[[str], Any] | None = None) -> Cell:
        """Wait for a cell and return what it did."""
        cell = Cell(turn.seq, code)
        for event in turn.events():
            match event.kind:
                case "output":
                    if event.stream == "stderr":
                        cell.stderr += event.text
                    else:
                        cell.stdout += event.text
                    if on_output:
                        on_output(event.text)
                case "result" | "display":
                    self._show(cell, event)
                case "exception":
                    e = event.data
                    cell.error = CellError(e["name"], e["message"], e.get("traceback", ""))
                case "ask":
                    self._consider(event)
                case "done":
                    cell.done = event.data
                    cell.outcome = event.data["outcome"]
                case _:
                    pass
        if cell.done is None:
            raise ended(self, turn.seq)
        return cell

    def _show(self, cell: Cell, event: Event) -> None:
        forms: dict[str, Any] = event.data
        if event.kind == "result":
            cell.result = self._form(forms.get("text/plain"))
        cell.displays.append(forms)
        for mime in IMAGES:
            if mime in forms:
                value = forms[mime]
                digest = blob_of(value)
                if digest is not None:
                    data = self.blob(digest)
                elif mime == "image/svg+xml":
                    data = value.encode()
                else:
                    data = binascii.a2b_base64(value)
                cell.images.append(Image(mime, data))
                return

    def _form(self, value: Any) -> str | None:
        digest = blob_of(value)
        if digest is not None:
            return (self.blob(digest)).decode(errors="replace")
        return value if value is None else str(value)

    def fork(self, *, name: str | None = None, id: str | None = None) -> Kernel:
        """Start another interpreter with a copy of the state of this one."""
        spec: types.SpecRequest = {"id": id or os.urandom(13).hex()}
        if name is not None:
            spec["name"] = name
        info: types.Info = self.http.post(self.path + "/fork", spec)
        return Kernel(self.spool, info, self._answer, self._tools)

    def restart(self) -> None:
        """Begin with a new interpreter."""
        self.control("restart")


class Agent(TurnRun):
    """A coding agent."""

    def submit(self, prompt: str, *, images: Iterable[Image] = (), timeout: float | None = None) -> Turn:
        """Send a prompt and return at once. The agent is shown the images: PNG, JPEG, GIF or WebP."""
        said: types.Prompt = {"text": prompt}
        shown: list[types.Image] = [{"mime": i.mime, "base64": base64_of(i.data)} for i in images]
        if shown:
            said["images"] = shown
        if timeout is not None:
            said["timeout_ms"] = round(timeout * 1000)
        return self.begin({"prompt": said})

    def prompt(
        self,
        prompt: str,
        *,
        images: Iterable[Image] = (),
        timeout: float | None = None,
        on_event: Callable[[Event], Any] | None = None,
    ) -> Answer:
        """Give the agent a prompt and return its answer. ``on_event`` gets each event as it comes."""
        turn = self.submit(prompt, images=images, timeout=timeout)
        actions: dict[str, dict[str, Any]] = {}
        for event in turn.events():
            if on_event:
                on_event(event)
            match event.kind:
                case "action":
                    actions.setdefault(event.data.get("id", str(event.seq)), {}).update(event.data)
                case "ask":
                    self._consider(event)
                case "done":
                    done: types.Done = event.data
                    return Answer(turn.seq, done, list(actions.values()))
                case _:
                    pass
        raise ended(self, turn.seq)


def ended(run: Run, turn: int) -> Ended:
    """Return the error of a turn whose run ended before it."""
    return Ended({"status": 409, "code": "ended", "detail": f"run {run.id} ended before turn {turn} was done"})
