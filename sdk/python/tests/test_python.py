"""Kernels and sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

import spool


def test_a_kernel_keeps_its_state(client: Any) -> None:
    kernel = client.kernel()
    assert kernel.exec("x = 20").check().result is None
    cell = kernel.exec("print('out')\nx * 2 + 2")
    assert (cell.result, cell.stdout, cell.ok) == ("42", "out\n", True)
    kernel.stop()
    assert kernel.wait().kind == "exited"


def test_a_cell_says_what_it_raised(client: Any) -> None:
    kernel = client.kernel()
    cell = kernel.exec("1/0")
    assert not cell.ok
    assert cell.error is not None and cell.error.name == "ZeroDivisionError"
    with pytest.raises(spool.RunFailed, match="ZeroDivisionError"):
        cell.check()
    kernel.kill()


def test_an_image_arrives(client: Any) -> None:
    kernel = client.kernel()
    code = """
import base64, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(b"\\0\\0")) + chunk(b"IEND", b"")
class Picture:
    def _repr_png_(self): return png
Picture()
"""
    cell = kernel.exec(code).check()
    assert [i.mime for i in cell.images] == ["image/png"]
    assert cell.images[0].data.startswith(b"\x89PNG")
    assert "<img" in cell._repr_html_()
    kernel.kill()


def test_a_cell_calls_a_tool_and_asks(client: Any) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    def fail() -> None:
        raise ValueError("no")

    kernel = client.kernel(tools={"add": add, "fail": fail}, answer=lambda ask: f"answer to {ask.prompt}")
    assert kernel.exec("tool.add(a=20, b=22)").check().result == "42"
    assert kernel.exec("input('name? ')").check().result == "'answer to name? '"
    failed = kernel.exec("tool.fail()")
    assert failed.error is not None and "no" in failed.error.message
    kernel.kill()


def test_output_arrives_as_it_comes(client: Any) -> None:
    kernel = client.kernel()
    seen: list[str] = []
    kernel.exec("for i in range(3): print(i, flush=True)", on_output=seen.append).check()
    assert "".join(seen) == "0\n1\n2\n"
    kernel.kill()


def test_a_turn_is_interrupted(client: Any) -> None:
    kernel = client.kernel()
    turn = kernel.submit("print('go', flush=True)\nwhile True: pass")
    for event in turn.events():
        if event.kind == "output":
            turn.interrupt()
    assert turn.wait()["outcome"] == "interrupted"
    assert kernel.exec("1").check().result == "1"
    kernel.kill()


def test_a_sandbox_computes(client: Any) -> None:
    box = client.box()
    assert box.exec("sum(range(10))").check().result == "45"
    assert not box.exec("open('/etc/passwd')").ok
    box.stop()
