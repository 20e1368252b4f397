"""A coding agent: a model, a loop, and the tools of Spool.

OPENAI_API_KEY=… python agent.py "Make the tests pass."
"""

import os
import sys

import httpx

from spool import Spool, Tools

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5")
RULES = "You are a coding agent. Work with the tools until the task is done, then say what you did."


def solve(task: str, tools: Tools, steps: int = 50) -> str:
    """Have the model work on a task, and return what it says in the end."""
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": task}]
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
    for _ in range(steps):
        request = {"model": MODEL, "messages": messages, "tools": tools.as_openai()}
        answer = httpx.post(f"{URL}/chat/completions", json=request, headers=headers, timeout=600)
        message = answer.raise_for_status().json()["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            print(f"> {name} {arguments}", file=sys.stderr)
            messages.append(tools.call(name, arguments).as_openai(call["id"]))
    return "I gave up."


if __name__ == "__main__":
    with Spool.local() as spool:
        print(solve(" ".join(sys.argv[1:]), spool.tools))
