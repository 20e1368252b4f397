"""Measures the Python client. Prints one JSON object: metric to list of values.

The argument is a JSON object: the state directory with the runs "events" and "output", and how
often to measure.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import spool

plan = json.loads(sys.argv[1])
out = {}


def add(metric, value):
    out.setdefault(metric, []).append(value)


def end(state):
    """End the server of a state directory, and its keepers."""
    while True:
        found = subprocess.run(["pgrep", "-f", f"(serve --state|keeper-role -state) {state} "], capture_output=True, text=True)
        if not found.stdout:
            return
        for pid in found.stdout.split():
            try:
                os.kill(int(pid), signal.SIGTERM)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def first(state):
    """How long it takes from nothing to the first output of a command."""
    t = time.perf_counter()
    s = spool.Spool.local(state=state)
    if next(iter(s.run(["echo", "x"]).stream())) != b"x\n":
        sys.exit("another output")
    return time.perf_counter() - t, s


# What a program does that has just been started. The processor time of the import says as much
# on a busy machine.
FRESH = """
import sys, time
began, used = time.perf_counter(), time.process_time()
import spool
imported, imports = time.perf_counter() - began, time.process_time() - used
with spool.Spool.local(state=sys.argv[1]) as s:
    if next(iter(s.run(["echo", "x"]).stream())) != b"x\\n":
        sys.exit("another output")
    print(imported, imports, time.perf_counter() - began)
"""


def fresh(state):
    """Measure the import, and the way to the first output, in a process of its own."""
    text = subprocess.check_output([sys.executable, "-c", FRESH, state], text=True)
    for metric, value in zip(("import", "import.cpu", "fresh"), text.split(), strict=True):
        add("sdk.python." + metric, float(value))


with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as top:
    for i in range(plan["times"]):
        state = f"{top}/{i}"
        took, s = first(state)
        add("sdk.python.cold", took)
        s.close()
        if i < plan["times"] - 1:
            end(state)
    for _ in range(4 * plan["times"]):
        took, s = first(state)
        add("sdk.python.first", took)
        s.close()
        fresh(state)
    end(state)
with spool.Spool.local(state=plan["state"]) as s:
    for _ in range(plan["times"]):
        t = time.perf_counter()
        n = 0
        for _event in s.get("events").events():
            n += 1
        add("sdk.python.events", n / (time.perf_counter() - t))
        if n != plan["events"]:
            sys.exit(f"{n} events")
        t = time.perf_counter()
        size = len(s.get("output").output())
        add("sdk.python.output", size / (time.perf_counter() - t))
        if size != plan["output"]:
            sys.exit(f"{size} bytes")
print(json.dumps(out))
