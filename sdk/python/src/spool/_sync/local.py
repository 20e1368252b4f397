"""The server of this user, which is started when it is needed."""

from __future__ import annotations

from .._local import POLL_SECONDS, START_SECONDS, Place
from .http import Retry


def ensure(place: Place) -> None:
    """Start the server if it does not listen, and wait until it does."""
    if place.answers():
        return
    starting = place.start()
    retry = Retry(START_SECONDS)
    try:
        while not place.answers():
            retry.delay = POLL_SECONDS
            retry.wait(starting.failure())
    finally:
        starting.done()
