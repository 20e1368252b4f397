# What Pyodide lacks of an interpreter that stands alone.
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
_spool_boot.prepare()
