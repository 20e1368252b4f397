"""Tools for models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import spool

PLOT = """
import struct, zlib
class Picture:
    def _repr_png_(self):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        return png + chunk(b"IDAT", zlib.compress(b"\\0\\0")) + chunk(b"IEND", b"")
Picture()
"""


def test_a_model_gets_the_tools(direct: Any) -> None:
    names = [t["function"]["name"] for t in direct.tools.as_openai()]
    assert names == ["run_command", "read_run", "send_input", "stop_run", "list_runs", "python", "ask_agent"]
    assert [t["name"] for t in direct.tools.as_anthropic()] == names
    assert all(t["input_schema"]["type"] == "object" for t in direct.tools.as_anthropic())
    assert list(direct.tools.functions()) == names
    with pytest.raises(ValueError, match="no tool nothing"):
        tools_of(direct, names=["nothing"])


def tools_of(direct: Any, **options: Any) -> Any:
    """Return tools with options, of either half."""
    inner = getattr(direct, "_inner", None)
    if inner is None:
        return spool.Tools(direct, **options)
    if "kernel" in options:
        options["kernel"] = options["kernel"]._inner
    return type(direct)(direct._loop, spool.AsyncTools(inner, **options))


def test_a_model_runs_and_reads(direct: Any, tmp_path: Path) -> None:
    tools = tools_of(direct, cwd=tmp_path, env={"COLOUR": "blue"}, budget=400)
    arguments = {
        "command": "basename $PWD; echo $COLOUR $SHAPE; seq 10000",
        "env": {"SHAPE": "round"},
        "budget": 90_000,
    }
    result = tools.call("run_command", json.dumps(arguments))
    assert not result.is_error
    assert tmp_path.name in result.text and "blue round" in result.text
    assert len(result.data["text"]) <= 400 and result.data["omitted"]["lines"] > 9000
    result = tools.call("read_run", {"run": result.data["run"], "grep": "^7777$", "context": 0})
    assert "7777" in result.text and "7776" not in result.text
    message = result.as_openai("call-1")
    assert (message["role"], message["tool_call_id"], message["content"]) == ("tool", "call-1", result.text)


def test_a_model_reads_what_it_did_wrong(direct: Any) -> None:
    for name, arguments, said in (
        ("run_comand", {}, "there is no tool run_comand"),
        ("run_command", "{", "no JSON object"),
        ("run_command", "[]", "no JSON object"),
        ("run_command", {"comand": "true"}, "command"),
        ("read_run", {"run": "nobody"}, "nobody"),
    ):
        result = direct.tools.call(name, arguments)
        assert result.is_error and said in result.text, result
        assert result.as_anthropic("use-1")["is_error"]


def test_a_model_draws_in_a_kernel_of_the_program(direct: Any) -> None:
    kernel = direct.kernel()
    kernel.exec("x = 20").check()
    tools = tools_of(direct, names=["python"], kernel=kernel)
    result = tools.call("python", {"code": "x * 2 + 2"})
    assert "42" in result.text and not result.images
    result = tools.call("python", {"code": PLOT})
    assert [i.mime for i in result.images] == ["image/png"] and result.data is None
    block = result.as_anthropic("use-1")
    assert [part["type"] for part in block["content"]] == ["text", "image"]
    kernel.kill()


def test_a_session_is_in_the_directory_of_the_tools(direct: Any, tmp_path: Path) -> None:
    tools = tools_of(direct, cwd=tmp_path)
    tools.call("python", {"code": "import os; x = os.getcwd()"})
    assert os.path.realpath(tmp_path) in tools.call("python", {"code": "x"}).text
    assert "NameError" in tools.call("python", {"code": "x", "session": "other"}).text
    tools.close()


def test_a_call_that_is_cut_is_done_once(client: Any, tmp_path: Path) -> None:
    tools = tools_of(client, cwd=tmp_path)
    run = client.run("cat; echo end", stdin=True)
    lines = [f"line {i}\n" for i in range(12)]
    tools.call("python", {"code": "n = 0"})
    for i, line in enumerate(lines):
        match = {"until": "match", "match": f"^line {i}$", "wait_ms": 50_000}
        result = tools.call("send_input", {"run": run.id, "text": line, "eof": line == lines[-1], **match})
        assert line.strip() in result.text, result
        assert tools.call("python", {"code": "n += 1\nn", "wait_ms": 50_000}).text.split()[-1] == str(i + 1)
    assert run.text() == "".join(lines) + "end\n"
    tools.close()
