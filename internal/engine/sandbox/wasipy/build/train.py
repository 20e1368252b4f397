"""What the interpreter is optimised for: a little of everything that scripts
do. build.sh runs it on a native interpreter that counts what it executes."""

import ast, base64, collections, csv, dataclasses, datetime, decimal, enum, functools, hashlib, heapq, io
import itertools, json, math, operator, os, pathlib, pickle, random, re, statistics, string, struct, textwrap
import tokenize, traceback, typing, zlib

random.seed(1)


def calls(n=22):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def tak(x, y, z):
        return z if y >= x else tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y))

    def variadic(*args, **kwargs):
        return len(args) + len(kwargs)

    fib(n), tak(12, 8, 4)
    return sum(variadic(i, i, k=i) for i in range(3000))


def numbers():
    total, x = 0, 1
    for i in range(1, 30000):
        total += (i * i) % 7 + (i // 3) - (i & 5 | 2 ^ i >> 1)
        x = x * 3 % 1000003
    big = functools.reduce(operator.mul, range(1, 250))
    text = str(big)
    int(text), big % 97, pow(3, 500, 10**9 + 7), divmod(big, 10**50)
    y = 0.0
    for i in range(20000):
        y += math.sqrt(i) * 0.5 - i / 3.0 + abs(math.sin(i)) ** 2
    return total, x, y, float("1.5"), round(y, 3), complex(1, 2) * 3j


def nbody(steps=400):
    bodies = [[float(i + k) for k in range(7)] for i in range(5)]
    for _ in range(steps):
        for i in range(5):
            x, y, z, vx, vy, vz, m = bodies[i]
            for j in range(i + 1, 5):
                a, b, c, _, _, _, w = bodies[j]
                dx, dy, dz = x - a, y - b, z - c
                mag = 0.01 / (dx * dx + dy * dy + dz * dz + 0.1) ** 1.5
                vx, vy, vz = vx - dx * w * mag, vy - dy * w * mag, vz - dz * w * mag
            bodies[i] = [x + 0.01 * vx, y + 0.01 * vy, z + 0.01 * vz, vx, vy, vz, m]


def strings():
    words = [random.choice(string.ascii_lowercase) * (i % 7 + 1) + str(i) for i in range(5000)]
    text = " ".join(words)
    out = []
    for w in text.split():
        w = w.strip().upper().lower().replace("a", "bb")
        if w.startswith("b") or w.endswith("7") or "cc" in w:
            out.append(f"{w:>10}|{len(w):03d}|{w!r}")
        out.append("%s-%d" % (w, len(w)))
        out.append("{} {}".format(w[1:3], w[::-1]))
    joined = "\n".join(out)
    joined.encode().decode(), "grüße € 🎉".encode().decode(), joined.count("x"), joined.find("zzz")
    return sorted(joined.splitlines(), key=str.lower)[:3], text.title(), textwrap.fill(text[:2000])


def containers():
    d = {}
    for i in range(40000):
        k = str(i % 1000)
        d[k] = d.get(k, 0) + i
    for k, v in d.items():
        d[k] = v + 1
    e = {i: i * i for i in range(5000)}
    s = {i % 100 for i in range(10000)} | {1, 2, 3}
    l = [x * 2 for x in range(20000) if x % 3]
    l.sort(key=lambda v: -v)
    l.append(1), l.pop(), l.insert(3, 3), l.index(3)
    t = tuple(l[:100])
    m = sorted(((v, k) for k, v in d.items()), reverse=True)
    c = collections.Counter(x % 10 for x in l)
    g = collections.defaultdict(list)
    for i in range(5000):
        g[i % 50].append(i)
    q = collections.deque(range(100))
    for _ in range(2000):
        q.append(q.popleft())
    h = []
    for i in range(2000):
        heapq.heappush(h, (i * 7919) % 2003)
    while h:
        heapq.heappop(h)
    matrix = [[i * j for j in range(40)] for i in range(40)]
    product = [[sum(a * b for a, b in zip(r, col)) for col in zip(*matrix)] for r in matrix]
    return len(e), len(s), t, m[0], c, g[3][:2], product[0][0], any(l), all(l), min(l), max(l), sum(x * x % 7 for x in range(20000))


class Shape:
    kind = "shape"
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    @property
    def area(self):
        return self.x * self.y

    def __lt__(self, other):
        return self.area < other.area

    def __eq__(self, other):
        return isinstance(other, Shape) and self.x == other.x

    def __hash__(self):
        return hash((self.x, self.y))


class Square(Shape):
    def __init__(self, x):
        super().__init__(x, x)

    def grow(self, by=1):
        self.x += by
        return self


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
    tags: list = dataclasses.field(default_factory=list)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def objects():
    shapes = [Square(i % 50) if i % 2 else Shape(i, 2) for i in range(5000)]
    shapes.sort()
    total = 0
    for s in shapes:
        total += s.area
        if isinstance(s, Square):
            s.grow(by=2).grow()
        getattr(s, "kind"), hasattr(s, "nothing")
    points = [Point(i, tags=[i]) for i in range(2000)]
    for p in points:
        p.x += p.y + len(p.tags)
    return total, len(set(shapes)), repr(points[0]), points[0] == points[1], Color.RED.name, Color(2)


def generators():
    def numbers(n):
        for i in range(n):
            yield i

    def chain(*its):
        for it in its:
            yield from it

    total = sum(chain(numbers(5000), numbers(5000)))
    total += sum(itertools.islice(itertools.cycle([1, 2, 3]), 3000))
    pairs = list(zip(range(3000), map(str, range(3000)), strict=True))
    return total, len(pairs), [k for k, _ in itertools.groupby(sorted(x % 9 for x in range(2000)))], list(enumerate("abc"))


def exceptions():
    caught = 0
    for i in range(3000):
        try:
            if i % 3 == 0:
                raise ValueError(i)
            if i % 3 == 1:
                {}["missing"]
            [][1]
        except (ValueError, KeyError):
            caught += 1
        except IndexError as e:
            caught += len(e.args)
        finally:
            caught += 1
    try:
        1 / 0
    except ZeroDivisionError as e:
        traceback.format_exception(e)
    with io.StringIO() as f:
        print("a", 1, 2.5, sep=",", file=f)
    return caught


def library():
    data = [{"id": i, "name": "n%d" % i, "tags": ["a", "b"], "v": i / 3, "ok": i % 2 == 0, "none": None} for i in range(400)]
    text = json.dumps(data, indent=1)
    assert json.loads(text) == data
    assert pickle.loads(pickle.dumps(data)) == data
    re.findall(r"\b(\w+)-(\d{2,})\b", "abc-123 de-4 fgh-567 " * 300)
    re.sub(r"[aeiou]+", lambda m: m.group().upper(), "the quick brown fox " * 300)
    re.compile(r"^(?P<a>[^@]+)@(?P<b>[a-z.]+)$", re.I).match("someone@example.com")
    rows = list(csv.reader(io.StringIO("a,b,c\n1,2,3\n" * 300)))
    hashlib.sha256(text.encode()).hexdigest(), zlib.decompress(zlib.compress(text.encode()))
    base64.b64decode(base64.b64encode(text.encode())), struct.unpack("<IhB", struct.pack("<IhB", 1, 2, 3))
    decimal.Decimal("1.1") ** 20, statistics.mean([1, 2, 3]), datetime.datetime(2024, 1, 2).isoformat()
    random.shuffle(rows), random.random(), random.randint(1, 6)
    source = open(dataclasses.__file__).read()
    compile(source, "x", "exec"), ast.unparse(ast.parse(source[:4000].rsplit("\n\n\n", 1)[0]))
    return pathlib.PurePath("/a/b") / "c.txt", os.path.join("a", "b")


for work in (calls, numbers, nbody, strings, containers, objects, generators, exceptions, library):
    for _ in range(3):
        work()
