"""Kernels and sandboxes."""

from __future__ import annotations

from typing import Any


def test_output_arrives_as_it_comes(client: Any) -> None:
    kernel = client.kernel()
    seen: list[str] = []
    kernel.exec("for i in range(3): print(i, flush=True)", on_output=seen.append).check()
    assert "".join(seen) == "0\n1\n2\n"
    kernel.kill()


def test_a_sandbox_computes(client: Any) -> None:
    box = client.box()
    assert box.exec("sum(range(10))").check().result == "45"
    assert not box.exec("open('/etc/passwd')").ok
    box.stop()
