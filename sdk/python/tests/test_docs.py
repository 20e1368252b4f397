"""The snippets of the documentation run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import end


def test_snippets_run(program: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as state:
        try:
            env = {
                "SPOOL_STATE": state,
                "SPOOL_PROGRAM": program,
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": state,
                # Sandboxes are compiled once for this machine, not once for each test.
                "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
            }
            source = Path(__file__).parents[1] / "src"
            done = subprocess.run(
                [sys.executable, "-c", "\n".join(blocks)],
                env={**env, "PYTHONPATH": str(source)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            for want in (
                *("hello\n", "False 3 exited 3", "62.8318", "6\n", "'yes'", "45\n", "['0\\n', '1\\n', '2\\n']"),
                *("True closed", "'run_command', 'read_run'", "100000\n", " False\n"),
            ):
                assert want in done.stdout, done.stdout
        finally:
            end(state)
