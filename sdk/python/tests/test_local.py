"""The server of this user."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import end

import spool


def test_the_server_of_this_user_starts_once(program: str) -> None:
    with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as state:
        try:
            with ThreadPoolExecutor(4) as pool:
                clients = list(pool.map(lambda _: spool.Spool.local(state=state, program=program), range(4)))
            run = clients[0].run("echo $HOME; pwd")
            assert run.text() == f"{os.environ['HOME']}\n{os.getcwd()}\n"
            assert [c.get(run.id).wait().ok for c in clients] == [True] * 4
            assert "echo $HOME" in run._repr_html_()
            end(state)
            assert clients[1].run("echo again").text() == "again\n"  # the server was started again
        finally:
            end(state)


def test_a_server_that_cannot_start_says_why(tmp_path: object) -> None:
    with pytest.raises(spool.ConnectionLost, match="ended with 1"):
        spool.Spool.local(state=f"{tmp_path}/state", program="/bin/false")
    with pytest.raises(FileNotFoundError):
        spool.Spool.local(state=f"{tmp_path}/state", program="/no/such/spool")
