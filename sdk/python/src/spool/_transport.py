"""What a transport answers, and how it fails.

``import spool`` takes as long as the modules that it loads. Each transport is loaded when a
client needs it, and the type checker's modules never are: ``TYPE_CHECKING`` is false here without
the module typing, which is one of the slow ones.
"""

from __future__ import annotations


class TransportFailed(Exception):
    """The connection was lost, or silent for too long, before the answer was complete."""


class ConnectFailed(TransportFailed):
    """There was no connection: the server has seen nothing of the request."""


class Answer:
    """The whole answer to a request. The names of headers are in small letters."""

    __slots__ = ("content", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content
