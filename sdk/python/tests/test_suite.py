"""The cases of the test suite of Go backends, by the same names, while connections are cut."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import spool


def kinds(run: Any) -> list[str]:
    events = list(run.events())
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert events[-1].kind == "closed"
    return [e.kind for e in events]


def lives(pid: int) -> bool:
    """Report whether a process runs: one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_exec_process_starts_and_exits(client: Any) -> None:
    run = client.run(["true"])
    assert run.wait() == spool.Outcome("exited", 0)
    assert kinds(run)[-2:] == ["exited", "closed"]
    assert "exited 0" in repr(run)


def test_streams_output(client: Any) -> None:
    run = client.run("echo out; echo err >&2")
    assert run.output("stdout") == b"out\n"
    assert run.output("stderr") == b"err\n"
    assert sorted(run.text().split()) == ["err", "out"]


def test_pushes_events(client: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    run = client.run(f"mkfifo {fifo}; echo one; cat {fifo}")
    seen = []
    for event in run.events():
        if event.kind == "output":
            seen.append(event.raw)
            if len(seen) == 1:
                fifo.write_bytes(b"two\n")
    assert b"".join(seen) == b"one\ntwo\n"


def test_replays_events_after_close(client: Any) -> None:
    run = client.run("echo hello")
    run.wait()
    first, again = list(run.events()), list(run.events())
    assert [e.to_dict() for e in first] == [e.to_dict() for e in again]
    assert list(run.events(first[-1].seq)) == []
    assert [e.seq for e in run.events(1)] == [e.seq for e in first[1:]]


def test_write_then_read(client: Any) -> None:
    run = client.run(["cat"], tty={"rows": 24, "cols": 80})
    run.stdin.write("hello\n")
    for event in run.events():
        if b"hello" in event.raw:
            break
    run.kill()
    run.wait()


def test_write_then_read_without_tty(client: Any) -> None:
    run = client.run(["cat"], stdin=True)
    run.stdin.write(b"hello\n")
    run.stdin.write("world\n")
    run.stdin.close()
    assert run.output() == b"hello\nworld\n"


def test_rejects_write_without_pipe_stdin(client: Any) -> None:
    run = client.run(["sleep", "60"])
    with pytest.raises(spool.InputClosed):
        run.stdin.write("x")
    run.kill()


def test_start_errors_are_typed(client: Any) -> None:
    with pytest.raises(spool.ProgramNotFound) as e:
        client.run(["no-such-program-here"])
    assert "hint:" in str(e.value)
    with pytest.raises(spool.StartFailed):
        client.run(["true"], cwd="/no/such/directory")


def test_repeated_start_id_is_one_run(client: Any) -> None:
    id = f"sdk{random.getrandbits(60):x}"
    assert client.run(["true"], id=id).id == client.run(["true"], id=id).id


def test_a_start_waits_for_the_end(client: Any) -> None:
    def start(spec: Any, wait_ms: int) -> Any:
        return client.http.post("/v1/runs", spec, params={"wait_ms": wait_ms})

    id = f"sdk{random.getrandbits(60):x}"
    for _ in range(2):
        info = start({"id": id, "argv": ["/bin/sh", "-c", "(sleep 0.2; echo two) & echo one; exit 3"]}, 50_000)
        assert (info["id"], info["state"], info["outcome"]["code"]) == (id, "closed", 3)
        assert client.get(id).output() == b"one\ntwo\n"
    long = {"id": f"sdk{random.getrandbits(60):x}", "argv": ["sleep", "1000"]}
    live = start(long, 100)
    assert live["state"] == "running"
    assert start(long, 100)["pid"] == live["pid"]
    client.get(long["id"]).kill()


def test_another_run_of_a_taken_id_exists(client: Any) -> None:
    id = f"sdk{random.getrandbits(60):x}"
    client.run(["true"], id=id)
    with pytest.raises(spool.Exists):
        client.run(["false"], id=id)


def test_close_stdin_ends_the_reader(client: Any) -> None:
    run = client.run(["cat"], stdin=True)
    run.stdin.close()
    assert run.wait().ok


def test_exited_and_closed_are_two_facts(client: Any) -> None:
    assert kinds(client.run(["false"]))[-2:] == ["exited", "closed"]


def test_signals_are_128_plus_n(client: Any) -> None:
    run = client.run(["sleep", "60"])
    run.signal("SIGUSR1")
    assert run.wait() == spool.Outcome("exited", 138, "SIGUSR1")


def test_repeated_control_id_is_done_once(client: Any) -> None:
    run = client.run(
        "n=0; trap 'n=$((n+1)); echo $n' USR1; trap 'echo end $n; exit' USR2; echo ready; while :; do read x; done",
        stdin=True,
    )
    text = ""
    for event in run.events():
        text += event.text if event.kind == "output" else ""
        if text == "ready\n":
            with pytest.raises(spool.InvalidRequest):
                run.control("signal", signal="SIGNOTHING", id="same")
            for _ in range(3):  # what was refused may be repeated
                run.control("signal", signal="SIGUSR1", id="same")
        elif text == "ready\n1\n":
            run.signal("SIGUSR1")
        elif text == "ready\n1\n2\n":
            run.control("signal", signal="SIGUSR2", id="last")
    assert text == "ready\n1\n2\nend 2\n"
    run.control("signal", signal="SIGUSR2", id="last")  # it ended the run
    with pytest.raises(spool.Ended):
        run.signal("SIGUSR2")


def test_stop_leaves_no_process(client: Any) -> None:
    run = client.run("setsid sleep 987654 & echo $!; wait")
    for event in run.events():
        if event.kind == "output":
            child = int(event.text)
            break
    run.stop()
    run.wait()
    assert not lives(child)


def test_resize_is_seen_by_the_child(client: Any) -> None:
    run = client.run(
        "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done", tty={"rows": 24, "cols": 80}
    )
    text = ""
    for event in run.events():
        if event.kind != "output":
            continue
        text += event.text
        if "ready" in text and "40 100" not in text:
            run.resize(40, 100)
    assert "40 100" in text


def test_finds_runs_by_prefix_and_name(client: Any) -> None:
    name = f"sdk-{random.getrandbits(60):x}"
    run = client.run(["sleep", "60"], name=name, labels={"team": name})
    assert client.find(name).id == run.id
    assert client.find(run.id[:20]).id == run.id
    assert client.get(run.id).id == run.id
    assert [r.id for r in client.runs(label=f"team:{name}")] == [run.id]
    run.kill()


def test_removes_finished_runs_only(client: Any) -> None:
    run = client.run(["sleep", "60"])
    with pytest.raises(spool.Conflict):
        run.delete()
    run.kill()
    run.wait()
    run.delete()
    with pytest.raises(spool.NotFound):
        run.info()


def test_unknown_run_is_not_found(client: Any) -> None:
    with pytest.raises(spool.NotFound):
        client.get("nosuchrun")
    with pytest.raises(spool.NotFound):
        client.find("nosuchrun")


def test_errors_of_send(client: Any) -> None:
    run = client.run(["cat"], stdin=True)
    run.kill()
    run.wait()
    with pytest.raises((spool.Ended, spool.InputClosed)):
        run.stdin.write("x")
    with pytest.raises(spool.Ended):
        run.signal("SIGUSR1")


def test_random_bytes_arrive_identical(client: Any, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(1 << 15)
    (tmp_path / "data").write_bytes(data)
    run = client.run(["cat", str(tmp_path / "data")])
    assert run.output() == data
    assert b"".join(e.raw for e in run.events() if e.kind == "output") == data


def test_many_at_once(client: Any) -> None:
    def one(i: int) -> bytes:
        return bytes(client.run(f"echo {i}").output())

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(64))) == [f"{i}\n".encode() for i in range(64)]


def test_search_finds_lines_of_live_and_finished_runs(client: Any) -> None:
    run = client.run("echo one; echo needle two; echo three")
    run.wait()
    hits = run.search("needle")
    assert [h["text"].rstrip() for h in hits] == ["needle two"]
    assert [h["seq"] for h in run.search("n.*dle", regex=True)] == [hits[0]["seq"]]


def test_check_shows_the_end_of_the_output(client: Any) -> None:
    with pytest.raises(spool.RunFailed, match=r"(?s)exited 3.*what went wrong"):
        client.run("echo what went wrong >&2; exit 3").check()


def test_a_timeout_ends_a_run(client: Any) -> None:
    outcome = client.run(["sleep", "60"], timeout=0.1).wait()
    assert not outcome.ok
    assert "timed out" in outcome.reason


def test_a_transcript_has_a_budget(client: Any) -> None:
    run = client.run("seq 100000")
    run.wait()
    excerpt = run.transcript(300)
    assert excerpt["tokens"] <= 300
    assert excerpt["omitted"]


def test_times_have_a_zone(client: Any) -> None:
    event = next(iter(client.run(["true"]).events()))
    assert event.time.tzinfo is not None
    assert event.time.timestamp() > 1.7e9


def test_a_wrong_token_is_refused(server: Any) -> None:
    with spool.Spool(server.url, "wrong") as s, pytest.raises(spool.Unauthenticated):
        s.server()
