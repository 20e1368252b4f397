"""A loop that analyses data: the model writes cells, and sees the plots that they draw.

ANTHROPIC_API_KEY=… python analysis.py "Which day was the warmest? Plot it." --python .venv/bin/python

The interpreter needs the packages that the model will want, such as matplotlib.
"""

import argparse
import os

import httpx

from spool import Spool, Tools

URL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
HEADERS = {"x-api-key": os.environ.get("ANTHROPIC_API_KEY", "none"), "anthropic-version": "2023-06-01"}


def analyse(question: str, tools: Tools, steps: int = 50) -> str:
    """Have the model answer a question, and save its plots as plot-1.png, plot-2.png …"""
    messages = [{"role": "user", "content": question}]
    plots = 0
    for _ in range(steps):
        request = {"model": MODEL, "max_tokens": 8000, "messages": messages, "tools": tools.as_anthropic()}
        answer = httpx.post(f"{URL}/v1/messages", json=request, headers=HEADERS, timeout=600).raise_for_status().json()
        messages.append({"role": "assistant", "content": answer["content"]})
        results = []
        for block in answer["content"]:
            if block["type"] != "tool_use":
                continue
            result = tools.call(block["name"], block["input"])
            for image in result.images:
                plots += 1
                image.save(f"plot-{plots}.png")
            results.append(result.as_anthropic(block["id"]))
        if not results:
            return "".join(block.get("text", "") for block in answer["content"])
        messages.append({"role": "user", "content": results})
    return "I gave up."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Answer a question about data in the current directory.")
    parser.add_argument("question")
    parser.add_argument("--python", help="the interpreter of the cells")
    options = parser.parse_args()
    with Spool.local() as spool:
        kernel = spool.kernel(interpreter=options.python, input="ask")
        print(analyse(options.question, Tools(spool, names=["python"], kernel=kernel, budget=4000)))
        kernel.stop()
