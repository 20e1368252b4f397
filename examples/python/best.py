"""Several coding agents on one task, each on a view of the directory of its own; the best
changes are applied: of those that pass the check, the smallest.

OPENAI_API_KEY=… python best.py "Make the tests pass." --check "python3 -B -m unittest" --agents 3
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor

from agent import solve

from spool import Kernel, Spool, Tools

HOW = "\nYou have Python in the directory; run commands with subprocess."


def attempt(spool: Spool, task: str, check: str) -> tuple[bool, int, Kernel]:
    """Have an agent try, and return whether the check passes, the size of the changes, and the run."""
    kernel = spool.kernel(workspace={"kind": "overlay"}, input="ask")
    solve(task + HOW, Tools(spool, names=["python"], kernel=kernel, budget=4000))
    cell = kernel.exec(f"import subprocess\nsubprocess.run({json.dumps(check)}, shell=True).returncode")
    size = sum(len(change.get("patch", "")) for change in kernel.changes())
    kernel.stop()
    kernel.wait()
    return cell.result == "0", size, kernel


def main(task: str, check: str, agents: int) -> int:
    """Apply the best attempt."""
    with Spool.local() as spool, ThreadPoolExecutor(agents) as threads:
        attempts = list(threads.map(lambda _: attempt(spool, task, check), range(agents)))
        passed = sorted(((size, kernel) for ok, size, kernel in attempts if ok and size), key=lambda found: found[0])
        print(f"{len(passed)} of {agents} attempts pass")
        if not passed:
            return 1
        for change in passed[0][1].changes():
            print(change["op"], change["path"])
            print(change.get("patch", ""), end="")
        passed[0][1].apply()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Have several agents try, and apply the best changes.")
    parser.add_argument("task")
    parser.add_argument("--check", required=True, help="a command that succeeds if the task is done")
    parser.add_argument("--agents", type=int, default=3)
    options = parser.parse_args()
    raise SystemExit(main(options.task, options.check, options.agents))
