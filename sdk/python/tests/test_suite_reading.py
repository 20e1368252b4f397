"""Cases of the test suite of Go backends about logs and limits, by the same names, while connections are cut."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import missing

import spool


def read(run: Any, **query: Any) -> Any:
    return run.http.get(run.path + "/events", **query)


def until(run: Any, text: str) -> None:
    """Wait until the run has written a text."""
    seen = ""
    for event in run.events():
        seen += event.text if event.kind == "output" else ""
        if text in seen:
            return
    raise AssertionError(f"the run ended without {text!r}: {seen!r}")


def test_preserves_queued_events_before_subscribe(client: Any) -> None:
    run = client.run("printf 'queued output\\n'")
    run.wait()  # nobody has read so far
    assert [(e.seq, e.kind, e.text) for e in run.events()] == [
        (1, "output", "queued output\n"),
        (2, "exited", ""),
        (3, "closed", ""),
    ]


def test_repeated_input_id_is_applied_once(client: Any) -> None:
    run = client.run(["cat"], stdin=True)
    for _ in range(3):
        run.http.send("POST", run.path + "/input", content=b"once\n", params={"id": "same"})
    run.stdin.close()
    assert run.output() == b"once\n"


def test_kill_passes_input_that_waits(client: Any) -> None:
    run = client.run("echo ready; exec sleep 1000", stdin=True)
    until(run, "ready")

    def fill() -> None:
        with pytest.raises((spool.InputClosed, spool.Ended)):
            while True:
                run.stdin.write(bytes(256 << 10))

    with ThreadPoolExecutor(1) as pool:
        filled = pool.submit(fill)
        run.kill()
        assert run.wait() == spool.Outcome("exited", 137, "SIGKILL")
        filled.result()


def test_env_values_are_not_kept(client: Any) -> None:
    env = {"PATH": os.environ["PATH"], "SECRET": "hunter2"}
    run = client.run("test ${#SECRET} -eq 7", env=env)
    assert run.wait().ok
    assert "hunter2" not in repr((run.info(), [e.to_dict() for e in run.events()]))


def test_errors_of_control(client: Any) -> None:
    tty = client.run("echo ready; read x", tty={"rows": 24, "cols": 80})
    piped = client.run("echo ready; read x", stdin=True)
    for run in (tty, piped):
        until(run, "ready")
        with pytest.raises((spool.Unsupported, spool.InvalidRequest)):
            run.control("dance")
        with pytest.raises(spool.Unsupported):
            run.control("restart")
        with pytest.raises(spool.InvalidRequest):
            run.signal("SIGNOTHING")
    with pytest.raises(spool.Unsupported):
        piped.resize(1, 1)
    with pytest.raises(spool.InvalidRequest):
        tty.resize(0, 0)
    for run in (tty, piped):
        run.kill()
        run.wait()
        for control in (
            run.interrupt,
            lambda run=run: run.signal("SIGHUP"),
            lambda run=run: run.resize(1, 1),
        ):
            with pytest.raises(spool.Ended):
                control()
        run.stop()
        run.kill()


def test_errors_of_a_closed_backend(client: Any) -> None:
    run = client.run(["true"])
    run.wait()
    client.close()
    for call in (
        run.info,
        run.output,
        run.kill,
        lambda: run.stdin.write("x"),
        lambda: list(run.events()),
        lambda: list(client.runs()),
        lambda: client.run(["true"]),
        lambda: next(client.watch()),
    ):
        with pytest.raises(spool.Closed):
            call()


def test_unknown_blob_is_not_found(client: Any) -> None:
    run = client.run(["true"])
    with pytest.raises(spool.NotFound):
        run.blob("sha256:" + "0" * 64)
    for digest in ("nonsense", "sha256:" + "0" * 65):
        with pytest.raises((spool.InvalidRequest, spool.NotFound)):
            run.blob(digest)


def test_long_poll_waits_for_the_first_event(client: Any) -> None:
    run = client.run('read x; echo "$x"; read x', stdin=True)
    assert read(run, wait_ms=1)["events"] == []
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(read, run, wait_ms=60_000)
        run.stdin.write("hi\n")
        assert [e["text"] for e in page.result()["events"] if e["kind"] == "output"] == ["hi\n"]
    run.stdin.close()
    run.wait()
    # A read with a cursor beyond the end of a finished log does not wait.
    assert read(run, after=1 << 40, wait_ms=60_000)["events"] == []


def test_pages_cover_the_log_without_holes(client: Any) -> None:
    run = client.run("i=0; while [ $i -lt 60 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done")
    whole = [e.to_dict() for e in run.events()]
    for most in (100, 1000, 1 << 20):
        got: list[Any] = []
        after = 0
        while len(got) < len(whole):
            page = read(run, after=after, max_bytes=most)
            assert page["events"]
            got += page["events"]
            after = page["next"]
        assert got == whole


def test_stalled_reader_changes_nothing(direct: Any) -> None:
    size = 4 << 20
    run = direct.run(f"yes 0123456789 | head -c {size}")
    stalled, release = threading.Event(), threading.Event()

    def stall() -> int:
        n = 0
        for event in run.events():
            if not stalled.is_set():
                stalled.set()
                release.wait()
            n += len(event.raw)
        return n

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(stall)
        try:
            stalled.wait()
            # One reader is stuck on its first event; another sees everything.
            assert len(run.output()) == size
        finally:
            release.set()
        assert slow.result() == size


def test_what_is_said_is_as_new_as_the_last_event(client: Any) -> None:
    for _ in range(5):
        run = client.run(["true"])
        state = ""
        while state != "closed":
            page = read(run, after=1)["info"]
            for info in (run.info(), page):
                assert info["last"] < 1 or "outcome" in info
                assert info["last"] < 2 or info["state"] == "closed"
            state = page["state"]


def test_a_reader_of_a_removed_run_sees_one_gap(direct: Any) -> None:
    # More than a reader may have in flight.
    run = direct.run("yes 0123456789012345678901234567890123456789012345678901234567890123 | head -c 16000000")
    run.wait()
    last = run.info()["last"]
    end = gaps = 0
    for event in run.events():
        if end == 0:
            run.delete()
        if event.kind == "truncated":
            gaps += 1
            assert (event.data["from"], event.data["to"], event.seq) == (end + 1, last, last)
        else:
            assert event.seq == end + 1
        end = event.seq
    assert end == last and gaps <= 1


def test_changes_of_workspaces_are_listed_applied_and_discarded(client: Any, tmp_path: Path) -> None:
    for name in ("kept", "changed", "deleted"):
        (tmp_path / name).write_text(name)
    runs = []
    for n in ("one", "two"):
        script = f"echo {n} >changed; rm deleted; mkdir new; echo {n} >new/{n}; head -n 1 >/dev/null"
        try:
            runs.append(client.run(script, cwd=tmp_path, workspace={"kind": "overlay"}, stdin=True))
        except spool.Unsupported as e:
            missing(str(e))
    one, two = runs
    for call in (one.apply, one.discard):  # while a run lives, its changes can be listed only
        with pytest.raises(spool.TooMany):
            call()
    one.changes()
    for run in runs:
        run.stdin.write("go\n")
        assert run.wait().ok
    assert paths(one) == ["changed", "deleted", "new", f"new{os.sep}one"]
    with pytest.raises(spool.NotFound):
        one.apply(["other"])
    with pytest.raises(spool.InvalidRequest):
        one.apply(["../other"])
    assert (tmp_path / "changed").read_text() == "changed"
    one.apply(["changed", "new"])
    assert ((tmp_path / "changed").read_text(), (tmp_path / "new" / "one").read_text()) == ("one\n", "one\n")
    assert paths(one) == ["deleted"]
    with pytest.raises(spool.Exists) as e:
        two.apply()
    assert "changed" in [c["path"] for c in e.value.problem["changes"]["changes"] if c.get("conflict")]
    assert (tmp_path / "deleted").exists() and not (tmp_path / "new" / "two").exists()
    two.discard()
    for call in (two.changes, two.apply):
        with pytest.raises(spool.NotFound):
            call()
    for run in runs:
        run.delete()


def paths(run: Any) -> list[str]:
    return [change["path"] for change in run.changes()]


def test_errors_of_workspaces(client: Any, tmp_path: Path) -> None:
    run = client.run(["true"])
    run.wait()
    for call in (run.changes, run.apply, run.discard):
        with pytest.raises(spool.Unsupported, match="no workspace"):
            call()
    snapshot = client.run("echo x >direct", cwd=tmp_path, workspace={"kind": "snapshot"})
    assert snapshot.wait().ok
    assert paths(snapshot) == ["direct"]
    snapshot.apply()
    with pytest.raises(spool.Unsupported):
        snapshot.discard()
    with pytest.raises(spool.StartFailed):
        client.run(["true"], workspace={"kind": "copy"})


def test_an_ended_run_has_a_ledger(client: Any) -> None:
    script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read line; echo got $line"
    run = client.run(script, stdin=True)
    assert "ledger" not in run.info()
    run.stdin.write("hello\n")
    run.wait()
    ledger = run.info()["ledger"]
    assert ledger["processes"]["user_us"] + ledger["processes"]["system_us"] >= 1000
    assert ledger["input_bytes"] == 6
    (listed,) = client.http.get("/v1/runs", prefix=run.id)["runs"]
    assert listed["ledger"] == ledger


def test_a_limit_that_was_met_is_in_the_ledger(client: Any) -> None:
    for argv, limits, want in (
        (["sleep", "1000"], {"wall_ms": 50}, ["timeout"]),
        (["sleep", "1000"], {"idle_ms": 50}, ["idle_timeout"]),
        (["true"], {"wall_ms": 3_600_000}, None),
    ):
        run = client.run(argv, limits=limits)
        run.wait()
        assert run.info()["ledger"].get("limits") == want
