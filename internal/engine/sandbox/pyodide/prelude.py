# What Pyodide lacks of an interpreter that stands alone, and what it has of one
# that lives in a browser.
import asyncio
import asyncio.runners
import time

import _spool
import _spool_boot


def _sleep():
    wait = _spool.sleep

    def sleep(seconds, /):
        """Delays execution for a number of seconds, which may be a fraction."""
        seconds = float(seconds)
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        wait(seconds)

    return sleep


time.sleep = _sleep()
asyncio._set_running_loop(None)  # that of the browser, which never stands still
asyncio.run = asyncio.runners.run
_spool_boot.prepare()
