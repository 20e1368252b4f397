"""The suite has the cases of the suite of Go backends."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Cases that make no sense here, and why.
EXCEPTIONS = {
    "an_ended_context_is_its_cause": "only tasks of asyncio are cancelled: "
    "test_a_task_that_is_cancelled_leaves_its_connection",
    "records_decode_to_what_follow_yields": "records are how servers of Spool pass events on to each other",
    "a_full_queue_is_busy": "the client waits until the queue has room, or raises TooMany: a server decides how many "
    "cells wait, and the Go suite fills its queue",
}


def test_every_case_of_the_go_suite_is_here() -> None:
    go: set[str] = set()
    for path in (ROOT / "internal/host/backendtest").glob("*.go"):
        go |= set(re.findall(r'^\t+\{"([a-z0-9_]+)", [a-zA-Z]+\},$', path.read_text(), re.MULTILINE))
    assert len(go) >= 70
    here: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        here |= set(re.findall(r"^def test_(\w+)\(", path.read_text(), re.MULTILINE))
    assert sorted(go - here - set(EXCEPTIONS)) == [], "write these cases, or say in EXCEPTIONS why not"
    assert sorted(set(EXCEPTIONS) - go) == []
    assert sorted(set(EXCEPTIONS) & here) == []
