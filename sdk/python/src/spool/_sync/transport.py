"""What a client needs of a transport. Only type checkers load it."""

from __future__ import annotations

from typing import Protocol

from .._transport import Answer


class Stream(Protocol):
    """An answer whose body is read as it comes."""

    status: int

    def __enter__(self) -> Stream:
        """Send the request and wait for the beginning of the answer."""
        ...

    def __exit__(self, *_: object) -> None:
        """Go away, wherever the body is."""
        ...

    def read(self) -> bytes:
        """Return what came next of the body; nothing at its end."""
        ...


class Transport(Protocol):
    """Sends requests. What goes wrong with a connection is a TransportFailed."""

    def request(
        self, method: str, target: str, headers: dict[str, str], content: bytes | None, timeout: float
    ) -> Answer:
        """Send a request and return the whole answer. No wait is longer than the timeout, in seconds."""
        ...

    def stream(self, target: str, headers: dict[str, str], timeout: float) -> Stream:
        """Return the stream at a target, which is opened when it is entered."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
