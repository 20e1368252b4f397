"""Executes cells in a notebook of JupyterLab, which it starts, as a page of it does.

lab.py KERNEL CODE...: prints the outputs of each cell as JSON, a line for each.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path

import websocket

TOKEN = "token"


def start():
    """Start JupyterLab and return its address, when it answers."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--port={port}", "--port-retries=50", f"--IdentityProvider.token={TOKEN}"]
    lab = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], stdout=sys.stderr)
    said = Path(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{lab.pid}.json")
    while not said.exists() or not said.read_text().endswith("}"):
        if lab.poll() is not None:
            sys.exit("JupyterLab has ended")
        time.sleep(0.05)
    return lab, f"127.0.0.1:{json.loads(said.read_text())['port']}"


def call(url, body=None):
    """Send a request and return the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def execute(page, session, code):
    """Execute a cell and return its outputs."""
    id = uuid.uuid4().hex
    header = {"msg_id": id, "session": session, "username": "", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    page.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}))
    outputs = []
    while True:
        message = json.loads(page.recv())
        kind, content = message["header"]["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != id:
            continue
        if kind in ("stream", "execute_result", "display_data", "error"):
            outputs.append({"output_type": kind, **content})
        if kind == "status" and content["execution_state"] == "idle":
            return outputs


kernel, *cells = sys.argv[1:]
lab, address = start()
if b"jupyter-config-data" not in call(f"http://{address}/lab"):
    sys.exit("there is no page of JupyterLab")
notebook = {"path": "report.ipynb", "name": "report.ipynb", "type": "notebook", "kernel": {"name": kernel}}
session = json.loads(call(f"http://{address}/api/sessions", notebook))
mine = uuid.uuid4().hex
page = websocket.create_connection(
    f"ws://{address}/api/kernels/{session['kernel']['id']}/channels?session_id={mine}",
    header=[f"Authorization: token {TOKEN}"],
    timeout=120,
)
for code in cells:
    print(json.dumps(execute(page, mine, code)), flush=True)
call(f"http://{address}/api/shutdown", {})
lab.wait()
