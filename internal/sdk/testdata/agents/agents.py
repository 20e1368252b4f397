"""Has a coding agent work, with approvals, and asks another one through the tools for models."""

import base64
import json
import os
import sys
from typing import Any

from spool import Image, Retyped, Spool, Tools

url, token, directory, snippet = sys.argv[1:]
asked: list[str] = []
PIXEL = base64.b64decode(os.environ["PIXEL"])


def approve(ask: Any) -> Any:
    asked.append(ask.data["command"])
    if not ask.retype:
        return True
    return Retyped(ask.retype) if "scrap" in ask.retype else False


env = {name: os.environ[name] for name in ("HOME", "PATH")}
policy = {"rule": [{"verdict": "ask", "command": ["rm"], "retype": True}]}
rules = {"mode": "duplex", "permissions": "untrusted", "sandbox": "danger-full-access", "policy": policy}
with Spool(url, token) as spool:
    answer = spool.agent("codex", cwd=directory, env=env, approve=approve, **rules).prompt(
        "Make a file, remove others.", images=[Image("image/png", PIXEL)]
    )
    result = Tools(spool, cwd=directory).call("ask_agent", {"agent": "codex", "prompt": "Say something."})
    print(json.dumps([answer.text, len(asked), result.data["text"], result.is_error]))
    exec(snippet)
