"""All runs: which change, and what they ask."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, clients
from cutting import CuttingProxy

import spool


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_change_during_a_cut_arrives(half: str, server: Server, tmp_path: Path) -> None:
    proxy = CuttingProxy(server.port, cuts=0, most=1, seed=1)
    direct = spool.Spool(server.url, server.token)
    label = f"test:{tmp_path.name}"
    for client in clients(half, proxy.url, server.token):
        ends, stays = (direct.run(["cat"], stdin=True, labels={"test": tmp_path.name}) for _ in range(2))
        live = client.watch(live=True, label=label)
        assert {next(live).id, next(live).id} == {ends.id, stays.id}
        proxy.refuse()
        ends.kill()
        ends.wait()
        proxy.admit()
        for changed in live:  # it is not live any more, and the other has not changed
            assert changed.id == ends.id
            if changed.latest["state"] == "closed":
                break
        live.close()
        stays.kill()
    direct.close()
    proxy.close()


def test_asks_are_answered_from_one_place(client: Any) -> None:
    kernel = client.kernel(input="ask")
    with ThreadPoolExecutor() as threads:
        cell = threads.submit(kernel.exec, "input('colour? ')")
        for ask in client.asks(follow=True, run=kernel.id):
            assert (ask.run, ask.kind, ask.prompt) == (kernel.id, "input", "colour? ")
            client.answer(ask, "blue")
            break
        assert cell.result().check().result == "'blue'"
    assert list(client.asks(run=kernel.id)) == []
    kernel.kill()
