# What scripts do all the time, in the process that interpreters are forked
# from: machine code that is made better there is better in all of them, and
# they have no threads to make it better themselves.
import json
import os
import re
import sys
import time


class _Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return _Point(self.x + other.x, self.y + other.y)

    def __lt__(self, other):
        return self.x < other.x


def _calls(n):
    return n if n < 2 else _calls(n - 1) + _calls(n - 2)


def _squares(n):
    for i in range(n):
        yield i * i


def _numbers():
    total = sum(i * 1.5 % 7 for i in _squares(500)) + _calls(11)
    n = 0
    while n < 1000:
        n += 1
        total += n // 3 - (n ^ 5) + (n & 3) + (n << 2) % 11
    return total + 3**200 % 1000003


def _collections():
    d = {}
    for i in range(600):
        key = str(i % 97)
        d[key] = d.get(key, 0) + i
    names = sorted(d, key=lambda k: (-d[k], k))
    points = [_Point(i * 7 % 13, i) for i in range(60)]
    points.sort()
    total = sum((p + points[0]).y for p in points)
    both = {k: v for k, v in zip(names, range(len(names)))}
    return total + len(set(both) & set(names[:10])) + [x for x in range(200) if x % 3][-1]


def _texts():
    lines = ["%d: %s" % (i, "word" * (i % 5)) for i in range(60)]
    text = "\n".join(f"{line!r:>20}" for line in lines)
    found = re.findall(r"(\d+): '?(\w*)", text)
    words = [w.strip().upper().replace("W", "v") for line in text.split("\n") for w in line.split(" ") if w]
    return len(json.loads(json.dumps({"found": found, "words": words}))) + len(text.encode().decode())


def _errors():
    count = 0
    for i in range(60):
        try:
            [][i]
        except IndexError as e:
            count += len(str(e))
    return count


def _files():
    for _ in range(40):
        os.stat("/workspace")
        os.path.exists("/workspace/f")
    with open("/workspace/f") as f:
        return f.read()


def _arrays():
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return 0
    a = numpy.arange(60, dtype=float).reshape(6, 10)
    b = (a * 2 + 1)[1:4, ::2] @ numpy.ones((5, 2))
    i = numpy.array([3, 1, 2])
    i.sort()
    total = a.sum() + a.mean(axis=0).max() + b.std() + i[i > 1].sum() + numpy.concatenate([i, i]).argmax()
    total += numpy.linalg.inv(numpy.eye(2)).sum() + numpy.sqrt(numpy.linspace(0, 1, 5)).min() + numpy.arange(3).sum()
    return len(str(total)) + len(repr(a)) + len(str(i))


def exercise(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for part in (_numbers, _collections, _texts, _errors, _files, _arrays):
            part()
