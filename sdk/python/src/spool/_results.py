"""How runs, cells and prompts ended."""

from __future__ import annotations

import binascii
import json

from ._errors import RunFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from . import _types as types


class Record:
    """A value made of fields: equal to another one with the same, and shown with some of them.

    The module dataclasses would make the same, and takes longer to load than the rest of this
    package.
    """

    __slots__: tuple[str, ...] = ()
    _shown: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._shown)})"


class Outcome(Record):
    """How a run ended. Only a reaped exit status makes ``kind`` "exited"."""

    __slots__ = ("code", "kind", "reason", "signal")
    _shown = ("kind", "code", "signal", "reason")

    def __init__(self, kind: str, code: int = 0, signal: str = "", reason: str = "") -> None:
        self.kind = kind
        self.code = code
        self.signal = signal
        self.reason = reason

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


class Image(Record):
    """An image that a cell displayed."""

    __slots__ = ("data", "mime")
    _shown = ("mime",)

    def __init__(self, mime: str, data: bytes) -> None:
        self.mime = mime
        self.data = data

    def save(self, path: str) -> None:
        """Write the image to a file."""
        with open(path, "wb") as f:
            f.write(self.data)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if self.mime == "image/svg+xml":
            return {self.mime: self.data.decode()}
        return {self.mime: base64_of(self.data)}


class CellError(Record):
    """What a cell raised."""

    __slots__ = ("message", "name", "traceback")
    _shown = ("name", "message")

    def __init__(self, name: str, message: str, traceback: str = "") -> None:
        self.name = name
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        return self.traceback or f"{self.name}: {self.message}"


class Cell(Record):
    """What a cell did: its output, its result, what it displayed and raised."""

    __slots__ = ("code", "displays", "done", "error", "images", "outcome", "result", "stderr", "stdout", "turn")
    _shown = ("turn", "outcome", "result", "images", "error")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, turn: int, code: str) -> None:
        self.turn = turn
        self.code = code
        self.outcome = "running"
        self.stdout = ""
        self.stderr = ""
        self.result: str | None = None
        self.displays: list[dict[str, Any]] = []
        self.images: list[Image] = []
        self.error: CellError | None = None
        self.done: types.Done | None = None

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
            raise RunFailed(str(self.error) if self.error else why(self.done, self.outcome))
        return self

    def _repr_html_(self) -> str:
        import html

        pictures = "".join(f'<img src="data:{i.mime};base64,{base64_of(i.data)}">' for i in self.images)
        return f"<pre>{html.escape(self.text)}</pre>{pictures}"


class Answer(Record):
    """What an agent answered to a prompt, and what it cost."""

    __slots__ = ("actions", "done", "outcome", "text", "turn", "usage")
    _shown = ("turn", "outcome", "text", "usage")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, turn: int, done: types.Done, actions: list[dict[str, Any]]) -> None:
        self.turn = turn
        self.outcome: str = done["outcome"]
        self.text: str = done.get("answer", "")
        self.usage: Any = done.get("usage")
        self.actions = actions
        self.done = done

    @property
    def ok(self) -> bool:
        """Whether the turn ended well."""
        return self.outcome == "ok"

    def __str__(self) -> str:
        return self.text

    def check(self) -> Answer:
        """Return the answer, or raise RunFailed if the turn did not end well."""
        if not self.ok:
            raise RunFailed(why(self.done, self.outcome))
        return self


class Ask(Record):
    """A question of a run that waits for an answer."""

    __slots__ = ("data", "kind", "name", "options", "prompt", "retype", "run", "secret", "seq", "turn")
    _shown = ("run", "seq", "kind", "turn", "name", "prompt", "options", "data", "secret")

    def __init__(self, run: str, seq: int, turn: int, data: Mapping[str, Any]) -> None:
        self.run = run
        self.seq = seq
        self.turn = turn
        self.kind: str = data.get("kind", "")
        self.name: str = data.get("name", "")
        self.prompt: str = data.get("prompt", "")
        self.options: tuple[str, ...] = tuple(o["id"] for o in data.get("options", ()))
        self.data: Any = data.get("data")
        self.secret: bool = data.get("secret", False)
        #: The text to type again to allow it, because the policy of the run calls it dangerous; or "".
        self.retype: str = self._what() if data.get("retype") else ""

    def _what(self) -> str:
        """Return the command that is asked for, or else the name."""
        try:
            command = str(self.data["command"]).strip()
        except (KeyError, TypeError):  # it asks for something else
            command = ""
        return command or self.name.strip()

    def __hash__(self) -> int:
        return hash((self.run, self.seq))

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


class Retyped(Record):
    """An answer that allows what is dangerous, with the text that was typed again."""

    __slots__ = ("data", "text")
    _shown = ("text", "data")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str, data: Any = True) -> None:
        self.text = text
        self.data = data


class ToolResult(Record):
    """What a tool returned, for a model to read.

    ``data`` is the same for a program, such as ``run`` and the cursor ``next``; a result with
    images has none.
    """

    __slots__ = ("data", "images", "is_error", "text")
    _shown = ("text", "images", "is_error")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        text: str,
        images: list[Image] | None = None,
        data: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        self.text = text
        self.images = images or []
        self.data = data
        self.is_error = is_error

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
                images.append(Image(part["mimeType"], binascii.a2b_base64(part["data"])))
        return cls("\n".join(texts), images, result.get("structuredContent"), result.get("isError", False))

    def as_openai(self, call: str) -> dict[str, Any]:
        """Return the message that answers a call of a tool in a chat of OpenAI, which takes no images."""
        return {"role": "tool", "tool_call_id": call, "content": self.text}

    def as_anthropic(self, use: str) -> dict[str, Any]:
        """Return the block that answers a use of a tool in a message of Anthropic, with the images."""
        content: list[dict[str, Any]] = [{"type": "text", "text": self.text}]
        for image in self.images:
            data = base64_of(image.data)
            source = {"type": "base64", "media_type": image.mime, "data": data}
            content.append({"type": "image", "source": source})
        return {"type": "tool_result", "tool_use_id": use, "content": content, "is_error": self.is_error}

    def __str__(self) -> str:
        return self.text


IMAGES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")


def blob_of(form: Any) -> str | None:
    """Return the digest of a form that is not in the log because it is large."""
    members: dict[str, Any] = form
    return str(members["blob"]) if isinstance(form, dict) else None


def run_html(info: types.Info, text: str) -> str:
    """Return a run as HTML, for a notebook."""
    import html

    what = " ".join(info.get("argv", [])) or info["engine"]
    state = str(Outcome.of(info)) if "outcome" in info else info["state"]
    head = f"<b>{html.escape(what)}</b> <code>{html.escape(info['id'][:12])}</code> {html.escape(state)}"
    return f"<div>{head}<pre>{html.escape(text)}</pre></div>"


def encode(value: Any) -> bytes:
    """Return the JSON form of a value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def base64_of(data: bytes) -> str:
    """Return bytes as text."""
    return binascii.b2a_base64(data, newline=False).decode()


def why(done: types.Done | None, outcome: str) -> str:
    """Return why a turn did not end well."""
    return (done.get("error") if done else None) or outcome
