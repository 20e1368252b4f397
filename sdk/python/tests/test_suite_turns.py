"""Cases of the test suite of Go backends about kernels, by the same names, while connections are cut."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import unique

import spool


@pytest.fixture
def kernel(client: Any) -> Any:
    k = client.kernel(input="ask")
    yield k
    k.kill()


def asked(turn: Any) -> int:
    """Wait until a turn asks, and return the seq of the ask."""
    return next(int(e.seq) for e in turn.events() if e.kind == "ask")


def test_a_cell_has_a_result(kernel: Any) -> None:
    assert kernel.exec("x = 20; x + 1").check().result == "21"
    assert kernel.exec("_ * 2").check().result == "42"
    cell = kernel.exec("print('out')\n'the third'").check()
    assert (cell.stdout, cell.result, cell.done["execution_count"]) == ("out\n", "'the third'", 3)
    info = kernel.info()
    assert (info["engine"], info["state"]) == ("kernel", "running")


def test_output_comes_in_order_before_done(kernel: Any) -> None:
    turn = kernel.submit(
        "import subprocess, sys\nprint('one')\nprint('two', file=sys.stderr)\n"
        "subprocess.run('echo three', shell=True)\nprint('four', end='')\ndisplay('five')\n'six'"
    )
    order: list[tuple[str, str]] = []
    written = ""
    for event in turn.events():
        assert event.turn == turn.seq
        if event.kind == "output":
            written += event.text
        else:
            order.append((event.kind, written))
            written = ""
    assert order == [("display", "one\ntwo\nthree\nfour"), ("result", ""), ("done", "")]


def test_an_exception_ends_a_cell(kernel: Any) -> None:
    cell = kernel.exec("print('before')\n1/0")
    assert (cell.outcome, cell.stdout, cell.ok) == ("error", "before\n", False)
    assert cell.error is not None and cell.error.name == "ZeroDivisionError" and "1/0" in cell.error.traceback
    with pytest.raises(spool.RunFailed, match="ZeroDivisionError"):
        cell.check()
    assert kernel.exec("'alive'").check().result == "'alive'"


def test_interrupt_keeps_the_state(kernel: Any) -> None:
    assert kernel.exec("x = 1; x").check().result == "1"
    turn = kernel.submit("import time\nprint('busy', flush=True)\ntime.sleep(3600)")
    for event in turn.events():
        if event.kind == "output":
            turn.interrupt()
    assert turn.wait()["outcome"] == "interrupted"
    turn.interrupt()  # one that is over is left alone
    assert kernel.exec("x").check().result == "1"


def test_interrupt_of_a_cell_that_waits(kernel: Any) -> None:
    first, second, third = (kernel.submit(code) for code in ("input()", "'never'", "'third'"))
    ask = asked(first)
    second.interrupt()
    assert second.wait()["outcome"] == "interrupted"
    kernel.answer(ask, "go on")
    assert kernel.collect(first).result == "'go on'"
    assert kernel.collect(third).result == "'third'"


def test_an_ask_is_answered_once(client: Any, kernel: Any) -> None:
    turn = kernel.submit("print('before', end='')\na = input('name? ')\nimport sys\nb = sys.stdin.readline()\n(a, b)")
    asks: list[Any] = []
    for event in turn.events():
        if event.kind == "ask":
            kernel.answer(event.seq, "Ada" if not asks else "Grace")
            with pytest.raises(spool.NotAsked):
                kernel.answer(event.seq, "again")
            asks.append(event.data)
    assert (asks[0]["kind"], asks[0]["prompt"]) == ("input", "name? ")
    cell = kernel.collect(turn)
    assert (cell.result, cell.stdout) == ("('Ada', 'Grace\\n')", "before")
    # Without that setting input() does not ask and does not wait.
    plain = client.kernel()
    cell = plain.exec("input()")
    assert cell.error is not None and cell.error.name == "EOFError"
    plain.kill()


def test_turn_and_asks_are_described(client: Any, kernel: Any) -> None:
    def until(right: Any) -> Any:
        """Wait for a description: it may be a moment older than the log."""
        for run in client.watch(prefix=kernel.id):
            if right(run.latest):
                return run.latest
        raise AssertionError

    def idle(info: Any) -> bool:
        return not info.get("turn") and not info.get("asks")

    def waits() -> bool:
        return kernel.id in [run.id for run in client.runs(waiting=True, prefix=kernel.id)]

    until(idle)
    assert not waits()
    first, second = kernel.submit("name = input('name? ')"), kernel.submit("1")
    info = until(lambda info: info.get("asks"))
    assert (info["turn"], info["asks"]["count"], len(info["asks"]["open"])) == (first.seq, 1, 1)
    assert waits()
    kernel.answer(info["asks"]["open"][0], "anna")
    assert first.wait()["outcome"] == second.wait()["outcome"] == "ok"
    until(idle)
    again = kernel.submit("input('again? ')")
    until(lambda info: info.get("asks") and info.get("turn"))
    kernel.kill()
    assert again.wait()["outcome"] == "killed"
    until(lambda info: info["state"] == "closed" and idle(info))
    assert not waits()


def test_tools_of_the_host(client: Any) -> None:
    def fail() -> None:
        raise ValueError("it does not work")

    tools = {"add": lambda a, b: {"sum": a + b}, "fail": fail}
    kernel = client.kernel(tools=tools, answer=lambda ask: f"answer to {ask.prompt}")
    assert kernel.exec("tool.add(a=2, b=3)['sum']").check().result == "5"
    assert kernel.exec("input('name? ')").check().result == "'answer to name? '"
    failed = kernel.exec("tool.fail()")
    assert failed.error is not None and "it does not work" in failed.error.message
    other = kernel.exec("tool.other()")
    assert other.error is not None and "other" in other.error.message and "add" in other.error.message
    threads = (
        "import threading\ngot = []\n"
        "ts = [threading.Thread(target=lambda i=i: got.append(tool.add(a=i, b=1)['sum'])) for i in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]; sorted(got)"
    )
    assert kernel.exec(threads).check().result == "[1, 2, 3, 4]"
    kernel.kill()


def test_fork_branches_the_state(kernel: Any) -> None:
    kernel.exec("x = [1]").check()
    name = "branch-" + unique()
    branch = kernel.fork(name=name)
    assert branch.info()["name"] == name
    assert branch.exec("x.append(2); x").check().result == "[1, 2]"
    assert kernel.exec("x").check().result == "[1]"
    branch.kill()
    kernel.exec("import threading; e = threading.Event(); threading.Thread(target=e.wait).start()").check()
    with pytest.raises(spool.StartFailed, match="thread"):
        kernel.fork()
    assert kernel.exec("e.set(); 2").check().result == "2"


def test_a_large_display_is_a_blob(kernel: Any) -> None:
    code = "class P:\n    def _repr_png_(self): return b'\\x89PNG' + bytes(20_000)\nP()"
    cell = kernel.exec(code).check()
    assert cell.displays[0]["image/png"]["size_bytes"] == 20_004
    assert [(i.mime, len(i.data), i.data[:4]) for i in cell.images] == [("image/png", 20_004, b"\x89PNG")]
    assert "<img" in cell._repr_html_()


def test_repeated_input_id_is_one_turn(kernel: Any) -> None:
    kernel.exec("n = 0").check()
    turns = [kernel.begin({"id": "same", "cell": {"code": "n += 1; n"}}) for _ in range(3)]
    assert len({turn.seq for turn in turns}) == 1
    assert kernel.collect(turns[0]).result == "1"
    assert turns[0].wait()["id"] == "same"
    assert kernel.exec("n").check().result == "1"


def test_a_crash_is_told_and_nothing_is_repeated(kernel: Any) -> None:
    kernel.exec("x = 1").check()
    cell = kernel.exec("print('last', flush=True); import os; os._exit(7)")
    assert (cell.outcome, cell.done["exit_code"], cell.stdout) == ("crashed", 7, "last\n")
    assert kernel.exec("'x' in globals()").check().result == "False"
    for event in kernel.events(cell.turn):
        if event.kind == "notice" and "new interpreter" in str(event.data):
            break  # the log says that the state is lost
        assert event.kind != "done" or event.turn == cell.turn


def test_a_run_that_ends_ends_its_turns(kernel: Any) -> None:
    turns = [kernel.submit("input()"), kernel.submit("'never'")]
    asked(turns[0])
    kernel.kill()
    assert [turn.wait()["outcome"] for turn in turns] == ["killed", "killed"]
    kernel.wait()
    with pytest.raises((spool.InputClosed, spool.Ended)):
        kernel.submit("1")


def test_every_accepted_input_has_one_end(kernel: Any) -> None:
    first = kernel.submit("import time; print('runs', flush=True); time.sleep(600)")
    next(e for e in first.events() if e.kind == "output")
    begun = threading.Event()

    def send() -> list[int]:
        accepted: list[int] = []
        while True:
            try:
                accepted.append(kernel.submit("pass").seq)
            except spool.TooMany:
                continue
            except (spool.InputClosed, spool.Ended):
                return accepted
            finally:
                if len(accepted) >= 10:
                    begun.set()

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        begun.wait()
        kernel.kill()
        events = list(kernel.events())
        ends = [e.turn for e in events if e.kind == "done"]
        assert events[-1].kind == "closed"
        for seq in [*sent.result(), first.seq]:
            assert ends.count(seq) == 1


def test_a_question_is_answered_between_cells(kernel: Any) -> None:
    def ask(**question: Any) -> Any:
        while True:  # an interpreter that is too slow for its deadline is asked again
            try:
                return kernel.http.post(kernel.path + "/inspect", question)
            except spool.TooMany:
                continue

    kernel.exec('class Ship:\n  "A ship."\n  def anchor(self, depth): pass\nship = Ship()').check()
    before = kernel.info()["last"]
    code = "é; ship.anc"
    answer = ask(op="complete", code=code, cursor=len(code))
    assert (answer["start"], answer["matches"]) == (8, ["anchor"])
    described = ask(op="describe", code="ship.anchor", source=True)
    assert "Signature: anchor(depth)" in described["text"]
    assert kernel.info()["last"] == before
    with pytest.raises(spool.Unsupported):
        ask(op="guess")
    turn = kernel.submit("input()")
    seq = asked(turn)
    with pytest.raises(spool.ProblemError) as e:  # a cell runs
        question = {"op": "complete", "code": "ship.", "cursor": 5}
        kernel.http.post(kernel.path + "/inspect", question, patient=False)
    assert e.value.code == "busy"
    kernel.answer(seq, "x")
    assert turn.wait()["outcome"] == "ok"


def test_the_ledger_of_a_kernel_counts_its_turns(kernel: Any) -> None:
    codes = ("sum(range(1000000))", "1 + 1", "while True: pass")
    assert kernel.exec(codes[0]).check().result == "499999500000"
    assert kernel.exec(codes[1]).check().result == "2"
    assert kernel.exec(codes[2], timeout=0.1).outcome == "timeout"
    kernel.kill()
    kernel.wait()
    ledger = kernel.info()["ledger"]
    assert ledger["processes"]["user_us"] >= 1000
    assert ledger["turns"] == 3 and ledger["input_bytes"] >= len("".join(codes))
    assert ledger["limits"] == ["turn_timeout"]
