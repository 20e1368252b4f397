"""A map over sandboxes: each value is computed by untrusted code in a sandbox of its own.

python sandboxes.py "sum(range(x))" --count 100 --parallel 8
"""

import argparse
import asyncio

from spool import AsyncSpool


async def compute(spool: AsyncSpool, parallel: asyncio.Semaphore, code: str, x: int) -> str:
    """Return what the code gives for a value, or what it raised."""
    async with parallel:
        box = await spool.box(name=f"x-{x}")
        try:
            cell = await box.exec(f"x = {x}\n{code}", timeout=60)
            return str(cell.result) if cell.ok else f"{cell.outcome}: {cell.error}"
        finally:
            await box.stop()


async def main(code: str, count: int, parallel: int) -> None:
    """Print the results in the order of the values."""
    async with await AsyncSpool.local() as spool:
        room = asyncio.Semaphore(parallel)
        results = await asyncio.gather(*(compute(spool, room, code, x) for x in range(count)))
    for x, result in enumerate(results):
        print(x, result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compute an expression of x in sandboxes.")
    parser.add_argument("code")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=8)
    options = parser.parse_args()
    asyncio.run(main(options.code, options.count, options.parallel))
