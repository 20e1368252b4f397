"""What both halves know about tools for models."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ._events import Frames
from ._tool_list import TOOLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SECRETS = ("KEY", "SECRET", "TOKEN", "PASSW", "CREDENTIAL")


def select(names: Iterable[str] | None) -> list[dict[str, Any]]:
    """Return the tools with these names, or all."""
    if names is None:
        return list(TOOLS)
    wanted = list(names)
    unknown = set(wanted) - {tool["name"] for tool in TOOLS}
    if unknown:
        raise ValueError(f"there is no tool {', '.join(sorted(unknown))}")
    return [tool for tool in TOOLS if tool["name"] in wanted]


def as_openai(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools as OpenAI's chat completions take them."""
    return [{"type": "function", "function": dict(tool)} for tool in tools]


def as_anthropic(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools as Anthropic's messages take them."""
    return [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools
    ]


def takes(tool: dict[str, Any], argument: str) -> bool:
    """Report whether a tool has an argument."""
    return argument in tool["parameters"]["properties"]


def read_arguments(arguments: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return the arguments of a call, or raise ValueError."""
    value: Any = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments or {}
    members: Mapping[str, Any] = value
    if not isinstance(value, Mapping):
        raise ValueError(f"got {json.dumps(value)[:80]}")
    return dict(members)


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those whose names look like secrets."""
    return {name: value for name, value in env.items() if not any(word in name.upper() for word in SECRETS)}


def answer_of(content: bytes) -> dict[str, Any]:
    """Return the message that answers a request, from a body of JSON or of server-sent events."""
    if content.lstrip().startswith(b"{"):
        message: dict[str, Any] = json.loads(content)
        return message
    for _, data in Frames().feed(content + b"\n\n"):
        if "result" in data or "error" in data:
            answer: dict[str, Any] = data
            return answer
    return {"error": {"message": "the server did not answer"}}
