"""How runs, cells and prompts ended."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ._errors import RunFailed

if TYPE_CHECKING:
    from . import _types as types


@dataclass(frozen=True)
class Outcome:
    """How a run ended. Only a reaped exit status makes ``kind`` "exited"."""

    kind: str
    code: int = 0
    signal: str = ""
    reason: str = ""

    @classmethod
    def of(cls, info: types.Info) -> Outcome:
        """Return the outcome in the description of a run."""
        o = info.get("outcome")
        if o is None:
            return cls("unknown", reason="the run has no outcome")
        return cls(o["kind"], o["code"], o.get("signal", ""), o.get("reason", ""))

    @property
    def ok(self) -> bool:
        """Whether the run exited with 0."""
        return self.kind == "exited" and self.code == 0

    def __str__(self) -> str:
        text = f"{self.kind} {self.code}" if self.kind == "exited" else self.kind
        if self.signal:
            text += f" ({self.signal})"
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(frozen=True)
class Image:
    """An image that a cell displayed."""

    mime: str
    data: bytes = field(repr=False)

    def save(self, path: str) -> None:
        """Write the image to a file."""
        with open(path, "wb") as f:
            f.write(self.data)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if self.mime == "image/svg+xml":
            return {self.mime: self.data.decode()}
        return {self.mime: base64.b64encode(self.data).decode()}


@dataclass(frozen=True)
class CellError:
    """What a cell raised."""

    name: str
    message: str
    traceback: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.traceback or f"{self.name}: {self.message}"


@dataclass
class Cell:
    """What a cell did: its output, its result, what it displayed and raised."""

    turn: int
    code: str = field(repr=False)
    outcome: str = "running"
    stdout: str = field(default="", repr=False)
    stderr: str = field(default="", repr=False)
    result: str | None = None
    displays: list[dict[str, Any]] = field(default_factory=lambda: [], repr=False)
    images: list[Image] = field(default_factory=lambda: [])
    error: CellError | None = None
    done: types.Done | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the cell ended without an error."""
        return self.outcome == "ok"

    @property
    def text(self) -> str:
        """Output, result and error, as a person reads them."""
        parts = [self.stdout, self.stderr, self.result or "", str(self.error) if self.error else ""]
        return "\n".join(p.rstrip("\n") for p in parts if p)

    def check(self) -> Cell:
        """Return the cell, or raise RunFailed if it did not end well."""
        if not self.ok:
            said = (self.done or cast("types.Done", {})).get("error") or self.outcome
            raise RunFailed(str(self.error) if self.error else said)
        return self

    def _repr_html_(self) -> str:
        pictures = "".join(f'<img src="data:{i.mime};base64,{base64.b64encode(i.data).decode()}">' for i in self.images)
        return f"<pre>{html.escape(self.text)}</pre>{pictures}"


@dataclass
class Answer:
    """What an agent answered to a prompt, and what it cost."""

    turn: int
    outcome: str
    text: str = ""
    usage: Any = None
    actions: list[dict[str, Any]] = field(default_factory=lambda: [], repr=False)
    done: types.Done | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the turn ended well."""
        return self.outcome == "ok"

    def __str__(self) -> str:
        return self.text

    def check(self) -> Answer:
        """Return the answer, or raise RunFailed if the turn did not end well."""
        if not self.ok:
            raise RunFailed((self.done or cast("types.Done", {})).get("error") or self.outcome)
        return self


@dataclass(frozen=True)
class Ask:
    """A question of a run that waits for an answer."""

    run: str
    seq: int
    kind: str
    turn: int = 0
    name: str = ""
    prompt: str = ""
    options: tuple[str, ...] = ()
    data: Any = None
    secret: bool = False

    @classmethod
    def of(cls, run: str, seq: int, turn: int, data: dict[str, Any]) -> Ask:
        """Return the ask that the data of an event describes."""
        return cls(
            run=run,
            seq=seq,
            kind=data.get("kind", ""),
            turn=turn,
            name=data.get("name", ""),
            prompt=data.get("prompt", ""),
            options=tuple(o["id"] for o in data.get("options", ())),
            data=data.get("data"),
            secret=data.get("secret", False),
        )

    def option(self, kind: str) -> str | None:
        """Return the option that begins with a word such as allow or deny, if there is one."""
        words = {"allow": ("allow", "approve", "accept", "yes"), "deny": ("deny", "reject", "decline", "no")}
        for word in words.get(kind, (kind,)):
            for option in self.options:
                if option == word or option.startswith(word):
                    return option
        return None

    def choice(self, data: Any) -> Any:
        """Return what to answer: for True and False the option that allows or denies, if there are options."""
        if isinstance(data, bool) and self.options:
            return self.option("allow" if data else "deny")
        return data


@dataclass
class ToolResult:
    """What a tool returned, for a model to read.

    ``data`` is the same for a program, such as ``run`` and the cursor ``next``; a result with
    images has none.
    """

    text: str
    images: list[Image] = field(default_factory=lambda: [])
    data: dict[str, Any] | None = field(default=None, repr=False)
    is_error: bool = False

    @classmethod
    def of(cls, message: dict[str, Any]) -> ToolResult:
        """Return the result that an answer of the server describes."""
        if "error" in message:
            return cls(str(message["error"].get("message", "")), is_error=True)
        result = message["result"]
        texts: list[str] = []
        images: list[Image] = []
        for part in result.get("content", ()):
            if part["type"] == "text":
                texts.append(part["text"])
            elif part["type"] == "image":
                images.append(Image(part["mimeType"], base64.b64decode(part["data"])))
        return cls("\n".join(texts), images, result.get("structuredContent"), result.get("isError", False))

    def as_openai(self, call: str) -> dict[str, Any]:
        """Return the message that answers a call of a tool in a chat of OpenAI, which takes no images."""
        return {"role": "tool", "tool_call_id": call, "content": self.text}

    def as_anthropic(self, use: str) -> dict[str, Any]:
        """Return the block that answers a use of a tool in a message of Anthropic, with the images."""
        content: list[dict[str, Any]] = [{"type": "text", "text": self.text}]
        for image in self.images:
            data = base64.b64encode(image.data).decode()
            source = {"type": "base64", "media_type": image.mime, "data": data}
            content.append({"type": "image", "source": source})
        return {"type": "tool_result", "tool_use_id": use, "content": content, "is_error": self.is_error}

    def __str__(self) -> str:
        return self.text


IMAGES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")


def blob_of(form: Any) -> str | None:
    """Return the digest of a form that is not in the log because it is large."""
    return str(cast("dict[str, Any]", form)["blob"]) if isinstance(form, dict) else None


def run_html(info: types.Info, text: str) -> str:
    """Return a run as HTML, for a notebook."""
    what = " ".join(info.get("argv", [])) or info["engine"]
    state = str(Outcome.of(info)) if "outcome" in info else info["state"]
    head = f"<b>{html.escape(what)}</b> <code>{html.escape(info['id'][:12])}</code> {html.escape(state)}"
    return f"<div>{head}<pre>{html.escape(text)}</pre></div>"


def encode(value: Any) -> bytes:
    """Return the JSON form of a value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
