"""Cases of the test suite of Go backends about many runs, by the same names, while connections are cut."""

from __future__ import annotations

import datetime
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import unique

import spool


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


def ids(client: Any, **query: Any) -> list[str]:
    return [info["id"] for info in client.http.get("/v1/runs", **query)["runs"]]


def finished(client: Any, id: str, mark: str, name: str | None = None) -> Any:
    run = client.run(["true"], id=id, name=name, labels={"test": mark})
    run.wait()
    return run


def test_each_filter_selects(client: Any) -> None:
    m = unique()
    a, b, c = f"{m}aone", f"{m}atwo", f"{m}bthree"
    before = now()
    finished(client, a, m, "x" + m)
    finished(client, b, m)
    between = now()
    labels = {"test": m, "color": "red", "size": "big"}
    live = client.run(["cat"], stdin=True, id=c, name="x" + m, labels=labels)
    mine = f"test:{m}"
    for query, want in (
        ({}, [c, b, a]),
        ({"oldest": 1}, [a, b, c]),
        ({"prefix": m + "a"}, [b, a]),
        ({"prefix": a}, [a]),
        ({"name": "x" + m}, [c, a]),
        ({"engine": "process"}, [c, b, a]),
        ({"engine": "kernel"}, []),
        ({"state": "running"}, [c]),
        ({"state": "exited"}, []),
        ({"state": "closed"}, [b, a]),
        ({"live": 1}, [c]),
        ({"live": 1, "state": "closed"}, []),
        ({"since": before}, [c, b, a]),
        ({"since": between}, [c]),
        ({"before": between}, [b, a]),
        ({"before": before}, []),
        ({"outcome": "exited"}, [b, a]),
        ({"outcome": "failed"}, []),
        ({"label": (mine, "color:red")}, [c]),
        ({"label": (mine, "color:red", "size:small")}, []),
        ({"label": (mine, "color")}, [c]),
        ({"label": (mine, "color", "shape")}, []),
        ({"name_glob": f"?{m}"}, [c, a]),
        ({"name_glob": f"y{m}*"}, []),
        ({"limit": 2}, [c, b]),
        ({"limit": 2, "oldest": 1}, [a, b]),
        ({"limit": 1, "prefix": m + "a"}, [b]),
    ):
        assert ids(client, **{"label": mine, **query}) == want, query
    live.kill()
    live.wait()
    assert ids(client, label=mine, state="closed", limit=1) == [c]


def test_pages_of_a_list_are_stable_while_runs_start(client: Any) -> None:
    m = unique()
    known = [finished(client, f"{m}{i}", m).id for i in range(5)]
    for oldest in (False, True):
        for limit in (1, 2, 5):
            got: list[str] = []
            cursor = None
            for n in range(100):
                page = client.http.get("/v1/runs", label=f"test:{m}", oldest=int(oldest), limit=limit, cursor=cursor)
                got += [info["id"] for info in page["runs"]]
                cursor = page.get("next")
                if not cursor:
                    break
                if n < 2:
                    client.run(["true"], labels={"test": m})
            assert len(set(got)) == len(got)
            assert [id for id in got if id in known] == (known if oldest else known[::-1])


def test_runs_are_counted_by_state(client: Any) -> None:
    m = unique()
    finished(client, f"{m}aone", m, "x" + m)
    finished(client, f"{m}atwo", m, "y" + m)
    live = client.run(["cat"], stdin=True, name="x" + m, labels={"test": m})
    for query in ({}, {"live": True}, {"state": "closed"}, {"state": "exited"}, {"name": "x" + m}, {"name": "none"}):
        want: dict[str, int] = {}
        for run in client.runs(label=f"test:{m}", **query):
            want[run.latest["state"]] = want.get(run.latest["state"], 0) + 1
        assert client.count(label=f"test:{m}", **query) == want, query
    with pytest.raises(spool.InvalidRequest):
        client.count(state="asleep")
    live.kill()


def test_a_list_goes_on_after_a_run_that_was_removed(client: Any) -> None:
    m = unique()
    runs = [finished(client, f"{m}{name}", m) for name in ("one", "two", "three")]
    page = client.http.get("/v1/runs", label=f"test:{m}", limit=2)
    assert [info["id"] for info in page["runs"]] == [runs[2].id, runs[1].id]
    runs[1].delete()
    assert ids(client, label=f"test:{m}", cursor=page["next"]) == [runs[0].id]


def test_filters_that_make_no_sense_are_invalid(client: Any) -> None:
    for query in (
        {"state": "asleep"},
        {"limit": -1},
        {"cursor": "nonsense"},
        {"cursor": "zz.../x"},
        {"outcome": "maybe"},
        {"name_glob": "[a"},
    ):
        with pytest.raises(spool.InvalidRequest):
            ids(client, **query)
    with pytest.raises(spool.InvalidRequest):
        next(client.runs(state="asleep"))


def one_wins(attempts: list[Any]) -> Any:
    """Do all at once. One succeeds, and the others are told why not."""

    def attempt(do: Any) -> Any:
        try:
            return do()
        except (spool.Exists, spool.StartFailed) as e:
            assert "exists" in e.code or "name" in e.code, e.code
            return None

    with ThreadPoolExecutor(len(attempts)) as pool:
        won = [got for got in pool.map(attempt, attempts) if got is not None]
    assert len(won) == 1
    return won[0]


def test_of_starts_with_one_name_one_wins(client: Any) -> None:
    name = "n" + unique()
    for _ in range(2):  # a run that has ended does not keep its name
        run = one_wins([lambda: client.run(["cat"], stdin=True, name=name)] * 8)
        run.kill()
        run.wait()


def test_of_kernels_with_one_name_one_starts(client: Any) -> None:
    name = "k" + unique()
    run = one_wins([lambda: client.kernel(name=name)] * 4)
    run.kill()
    run.wait()


def test_of_renames_to_one_name_one_wins(client: Any) -> None:
    name = "n" + unique()
    runs = [client.run(["cat"], stdin=True) for _ in range(4)]
    one_wins([lambda run=run: run.rename(name) for run in runs])
    assert [run.info().get("name") for run in runs].count(name) == 1
    for run in runs:
        run.kill()


def test_renames_live_and_finished_runs(client: Any) -> None:
    first, second, third = (f"{n}-{unique()}" for n in ("first", "second", "third"))
    run = client.run(["cat"], stdin=True, name=first)

    def rename(old: str, new: str) -> None:
        assert run.rename(new)["name"] == new
        assert run.info()["name"] == new
        assert (ids(client, name=old), ids(client, name=new)) == ([], [run.id])

    rename(first, second)
    run.kill()
    run.wait()
    assert run.info()["name"] == second
    rename(second, third)
    run.delete()
    with pytest.raises(spool.NotFound):
        run.rename("other")


def test_rename_refuses_a_long_name(client: Any) -> None:
    run = client.run(["true"])
    with pytest.raises(spool.InvalidRequest):
        run.rename("x" * 100_000)


def test_the_end_of_a_run_starts_its_notification(client: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "told"
    os.mkfifo(fifo)
    script = 'echo "$SPOOL_RUN|$SPOOL_STATUS|$SPOOL_EXIT_CODE|$SECRET" > "$TOLD"; echo told'
    env = {"PATH": os.environ["PATH"], "TOLD": str(fifo), "SECRET": "hidden"}
    info = client.start({"argv": ["sh", "-c", "exit 3"], "env": env, "notify": ["/bin/sh", "-c", script]})
    assert fifo.read_text() == f"{info['id']}|exited 3|3|hidden\n"
    (told,) = client.runs(label=f"spool.notify:{info['id']}")
    assert "hidden" not in " ".join(told.latest["argv"])
    assert told.text() == "told\n"


def test_a_watcher_learns_of_every_change(client: Any) -> None:
    m = unique()
    labels = {"test": m}
    before = client.run(["cat"], stdin=True, labels=labels)
    done = client.run("exit 3", labels=labels)
    done.wait()
    other = client.run(["cat"], stdin=True)
    seen: dict[str, Any] = {}
    after, told = None, False
    for changed in client.watch(label=f"test:{m}"):
        assert changed.id != other.id
        seen[changed.id] = changed.latest
        if after is None and len(seen) == 2:
            assert (seen[before.id]["state"], seen[done.id]["state"]) == ("running", "closed")
            before.stdin.close()
            other.stdin.close()
            after = client.run("echo hi; cat", stdin=True, labels=labels)
        elif after is not None and changed.id == after.id and changed.latest["state"] == "running":
            if changed.latest.get("bytes") == 3 and not told:
                told = True
                after.stdin.close()
        elif after is not None and after.id in seen and {i["state"] for i in seen.values()} == {"closed"}:
            break
    assert seen[before.id]["outcome"]["code"] == 0 and seen[done.id]["outcome"]["code"] == 3
    # A run that the query does not select any more is seen a last time.
    late = client.run(["cat"], stdin=True, labels=labels)
    states: list[str] = []
    for changed in client.watch(live=True, label=f"test:{m}"):
        assert changed.id == late.id
        states.append(changed.latest["state"])
        if states[-1] == "closed":
            break
        if len(states) == 1:
            late.stdin.close()
    with pytest.raises(spool.InvalidRequest):
        next(client.watch(state="asleep"))


def test_pages_of_a_search_hold_each_hit_once(client: Any) -> None:
    m = unique()
    for i in range(2):
        run = client.run("seq -f 'line %g' 12", id=f"{m}{1 - i}", labels={"test": m})
        run.wait()
    want = [(f"{m}{i}", f"line {n}") for i in range(2) for n in range(1, 13)]
    for limit in (1, 7, 12, 13, 1000):
        got: list[tuple[str, str]] = []
        cursor = None
        while True:
            page = client.http.get("/v1/search", q="line", label=f"test:{m}", limit=limit, cursor=cursor)
            assert len(page["hits"]) <= limit
            got += [(hit["run"], hit["text"].rstrip()) for hit in page["hits"]]
            cursor = page.get("next")
            if not cursor:
                break
        assert got == want


def test_errors_of_a_search(client: Any) -> None:
    run = client.run(["true"])
    run.wait()
    for query in (
        {"q": ""},
        {"q": "(", "mode": "regex"},
        {"q": "a\nb"},
        {"q": "x" * 5000},
        {"q": "x", "cursor": "nonsense"},
        {"q": "x", "limit": -1},
        {"q": "x", "state": "odd"},
    ):
        with pytest.raises(spool.InvalidRequest):
            client.http.get("/v1/search", **query)
    with pytest.raises(spool.NotFound):
        client.http.get("/v1/search", q="x", run=(run.id, "unknown"))
    with pytest.raises(spool.InvalidRequest):
        run.search("(", regex=True)
    assert run.search("x") == []
