"""Makes the synchronous half of the package from the asynchronous one.

``python unasync.py`` writes it, ``python unasync.py --check`` only compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

WORDS = [
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"AsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bshow_html\b", "_repr_html_"),
    (r"\bAsync([A-Z]\w*)\b", r"\1"),
    (r"\banext\(", "next("),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\ba(close|iter_raw|read)\(", r"\1("),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio\n", ""),
    (r"_async\b", "_sync"),
    (r"asynchronous half\. The other one, _sync, is made of it by", "synchronous half, made of the other one by"),
]


def convert(text: str) -> str:
    """Return the synchronous form of a module."""
    for pattern, new in WORDS:
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return text


def main() -> int:
    """Write or compare all modules."""
    root = Path(__file__).parent / "src" / "spool"
    check = "--check" in sys.argv
    stale = []
    for source in sorted((root / "_async").glob("*.py")):
        target = root / "_sync" / source.name
        text = convert(source.read_text())
        if check and (not target.exists() or target.read_text() != text):
            stale.append(target.name)
        elif not check:
            target.write_text(text)
    if stale:
        print(f"differ from _async: {', '.join(stale)}; run python unasync.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
