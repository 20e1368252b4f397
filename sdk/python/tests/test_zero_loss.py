"""Connections that are cut, servers that are killed: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conftest import Server, clients, missing

import spool

CUTS = 125  # for each half and way, together with the suite


def at_least(enough: Callable[[], bool]) -> Iterator[None]:
    """Go on until there is enough, and do it once in any case."""
    yield
    while not enough():
        yield


def test_every_event_comes_once(any_client: Any) -> None:
    client = any_client
    script = "i=0; while [ $i -lt 2000 ]; do echo line $i of many; i=$((i+1)); done"
    want = b"".join(b"line %d of many\n" % i for i in range(2000))
    run = client.run(script)
    for _ in at_least(lambda: client.proxy.cuts >= CUTS):
        seqs = []
        out = []
        for event in run.events():
            seqs.append(event.seq)
            if event.kind == "output":
                out.append(event.raw)
        assert seqs == list(range(1, len(seqs) + 1))
        assert b"".join(out) == want
        assert run.output() == want


def test_input_arrives_once(any_client: Any) -> None:
    run = any_client.run(["cat"], stdin=True)
    sent = []
    r = random.Random(3)
    for _ in range(60):
        piece = r.randbytes(r.randrange(2000))
        run.stdin.write(piece)
        sent.append(piece)
    run.stdin.close()
    assert run.output() == b"".join(sent)


def test_changes_are_applied_whatever_is_cut(any_client: Any, tmp_path: Path) -> None:
    script = "i=0; while [ $i -lt 40 ]; do echo $i >f$i; i=$((i+1)); done"
    for some in (False, True):
        directory = tmp_path / f"{some}"
        directory.mkdir()
        try:
            run = any_client.run(script, cwd=directory, workspace={"kind": "overlay"})
        except spool.Unsupported as e:
            missing(str(e))
        run.wait()
        names = [f"f{i}" for i in range(40)]
        run.apply(names if some else ())
        assert sorted(os.listdir(directory)) == sorted(names)
        assert run.changes() == []
        run.delete()


def test_a_killed_server_comes_back(program: str) -> None:
    with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as state:
        server = Server(Path(state), program)
        for client in clients("sync", server.url, server.token):
            run = client.run("for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done")
            out = b""
            for event in run.events():
                if event.kind == "output":
                    out += event.raw
                    if event.raw == b"2\n":
                        server.restart()
            assert out == b"1\n2\n3\n4\n5\n6\n"
            assert run.wait().ok
        server.stop()
