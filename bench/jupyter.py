"""Measures ipykernel through jupyter_client, as bench/kernel.go does Spool.

Prints one JSON object: metric to list of values in seconds or bytes. The first
argument is a JSON object that says how often and what to run.
"""
import json
import sys
import time

from jupyter_client.manager import KernelManager

plan = json.loads(sys.argv[1])
out = {}


def add(metric, value):
    out.setdefault(metric, []).append(value)


def start():
    km = KernelManager()
    km.start_kernel()
    kc = km.client()
    kc.start_channels()
    kc.wait_for_ready(timeout=60)
    return km, kc


def end(km, kc):
    kc.stop_channels()
    km.shutdown_kernel(now=True)


def messages(kc, msg_id):
    """What the request causes, until the kernel is idle again."""
    while True:
        m = kc.get_iopub_msg(timeout=120)
        if m["parent_header"].get("msg_id") != msg_id:
            continue
        if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
            return
        yield m


def reply(kc, msg_id):
    while kc.get_shell_msg(timeout=120)["parent_header"].get("msg_id") != msg_id:
        pass


def run(kc, code, each=None):
    msg_id = kc.execute(code)
    for m in messages(kc, msg_id):
        if each and m["msg_type"] == "stream":
            each(m["content"]["text"])
    reply(kc, msg_id)


for _ in range(plan["starts"]):
    t = time.perf_counter()
    km, kc = start()
    add("kernel.ready", time.perf_counter() - t)
    end(km, kc)

km, kc = start()
for line in open("/proc/%d/smaps_rollup" % km.provisioner.pid):
    if line.startswith("Pss:"):
        add("kernel.pss", int(line.split()[1]) * 1024)
for i in range(plan["cells"]):
    t = time.perf_counter()
    run(kc, "1+1")
    if i >= 20:
        add("kernel.cell", time.perf_counter() - t)
for _ in range(plan["interrupts"]):
    msg_id = kc.execute("print('x', flush=True)\nwhile True: pass")
    t = 0
    for m in messages(kc, msg_id):
        if m["msg_type"] == "stream" and not t:
            t = time.perf_counter()
            km.interrupt_kernel()
    reply(kc, msg_id)
    add("kernel.interrupt", time.perf_counter() - t)
for metric, code in plan["prints"].items():
    size = 0

    def count(text):
        global size
        size += len(text)

    t = time.perf_counter()
    run(kc, code, count)
    add(metric, time.perf_counter() - t)
    if metric != "kernel.prints" and size != plan["size"]:
        sys.exit("%s: %d bytes arrived" % (metric, size))
for _ in range(plan["first"]):
    seen = []
    run(kc, "import time\nprint('%.6f' % time.time(), end='')\ntime.sleep(0.2)", lambda text: seen.append((time.time(), text)))
    add("kernel.first", seen[0][0] - float(seen[0][1]))
end(km, kc)
print(json.dumps(out))
