"""The Python side of a kernel: one file, standard library only.

It is executed in three ways, which share everything from serve() on:
  kernel   started by the host: descriptors 3, 4, 5 are control, lifeline, dump
  zygote   imports what kernels will need, then forks them on request
  fork     of a live kernel, on request

Control is a Unix stream socket with frames of four bytes of length and a
marshalled dict, both ways. Descriptors 1 and 2 are pipes that the host reads,
so output never passes through here as a frame. The host sees the right order
because nothing is written to one of the three channels before the host has
taken what is in the others (see _order).

Everything needed after user code has run is reached by private names, never by
looking it up in a module that user code may have changed.
"""
import sys

_started = sys.modules  # what was there before user code is ours to keep
import io as _io
import _signal
import _socket
import _thread
import builtins
import fcntl
import marshal
import os
import select
import types

_T = type(sys)
_dumps, _loads = marshal.dumps, marshal.loads
_ioctl = fcntl.ioctl
_poll = select.poll
_getpid, _dup2, _exit = os.getpid, os.dup2, os._exit
_probe = os.get_inheritable  # the cheapest call that fails if a descriptor is not open
_ident = _thread.get_ident
_new_lock = _thread.allocate_lock
_threads = _thread._count
_Traceback = types.TracebackType
_compile, _exec, _eval, _repr = compile, exec, eval, repr
_isinstance, _getattr, _callable, _len, _type, _str, _id = isinstance, getattr, callable, len, type, str, id
_getsignal, _setsignal = _signal.getsignal, _signal.signal
import time as _time
_sleep, _now = _time.sleep, _time.monotonic
del _time

_FIONREAD, _OUTQ = 0x541B, 0x5411
_AST_ONLY, _TOP_AWAIT, _CORO = 0x400, 0x2000, 0x80
_SIGINT = 2
_COMPACT = {"compact": True} if sys.version_info >= (3, 10) else {}  # of a traceback
_HERE = (lambda: 0).__code__.co_filename
_MAX_FRAME = 60 << 20
_MAX_ITEMS = 1000  # of a container that are shown
_KEPT_SOURCES = 4096


class _State:
    """The state of the kernel. There is one instance."""

    ns = None  # the namespace of __main__
    sock = None
    poll = None
    ctl = life = dump = own1 = own2 = -1
    out = err = None
    pid = 0
    main = 0  # ident of the main thread
    turn = 0
    count = 0  # cells counted
    serial = 0
    busy = False  # user code runs in the main thread: an interrupt raises
    critical = 0  # the main thread must not be interrupted now
    reader = 0  # the main thread, if it holds _rlock
    pending = False  # an interrupt came meanwhile
    early = False  # an interrupt came while no cell ran
    stop = 0  # the last turn that the host asked to stop
    seen = 0  # the last turn whose interrupt was handled
    unseen = 0  # ticks since the host asked to stop the turn
    writing = 0  # the descriptor that the main thread writes to
    unread = False  # the host did not take what was written in time
    raised = 0.0  # when the last interrupt was raised
    silent = False
    child = False  # this is a process that user code forked
    loop = None
    future = 0  # compiler flags of __future__ imports
    ticking = running = False
    base = 1  # threads that are ours
    leave = False  # our own thread must end
    asked = 0
    tools = ()
    asking = False
    quiet = None  # displays are captured into this list
    prepared = False
    first = None  # what we put first in sys.path; None if that is not ours
    once = False  # the first cell is a whole program


S = _State()
_nul4 = b"\0\0\0\0"


# --- frames --------------------------------------------------------------

def _queued(fd, request):
    try:
        return _ioctl(fd, request, _nul4) != _nul4
    except OSError:
        return False


def _order(other):
    """Wait until the host took what is on the control channel and in the
    other pipe: up to 5 s, which is enough for a host on a busy machine.
    A host that does not read is no reason to stop: after one such wait the next
    ones are short."""
    pause = 0.00002
    for _ in range(14 if S.unread else 1260):
        if not (_queued(S.ctl, _OUTQ) or other >= 0 and _queued(other, _FIONREAD)):
            S.unread = False
            return
        _sleep(pause)
        if pause < 0.004:
            pause *= 2
    S.unread = True


def _plain(o, depth=0):
    """A copy of o that can be marshalled and is JSON in all but NaN."""
    t = _type(o)
    if o is None or o is True or o is False or t is float or t is str:
        return o
    if t is int:
        return o if -(1 << 53) <= o <= 1 << 53 else _repr(o)
    if depth > 40:
        return _text(o)
    if _isinstance(o, dict):
        return {k if _type(k) is str else _text(k): _plain(v, depth + 1) for k, v in o.items()}
    if _isinstance(o, (list, tuple)):
        return [_plain(v, depth + 1) for v in o]
    if _isinstance(o, (bool, int, float, str)):
        return _plain((bool, int, float, str)[[_isinstance(o, c) for c in (bool, int, float, str)].index(True)](o), depth)
    item = _getattr(o, "item", None)
    if _callable(item) and _getattr(o, "shape", None) == ():  # a number of numpy
        try:
            return _plain(item(), depth + 1)
        except Exception:
            pass
    return _text(o)


_sending = _new_lock()
_held = []  # frames that go out with the next one


def _frame(o):
    try:
        b = _dumps(o, 2)
    except (ValueError, TypeError):
        b = _dumps(_plain(o), 2)
    return _len(b).to_bytes(4, "little") + b


def _send(o, hold=False):
    if S.child:
        return
    b = _frame(o)
    if _len(b) > _MAX_FRAME:
        b = _frame({"t": "oversize", "of": o.get("t"), "size": _len(b)})
    mine = _ident() == S.main
    if mine:
        S.critical += 1
    try:
        with _sending:
            _held.append(b)
            if not hold:
                b = _held[0] if _len(_held) == 1 else b"".join(_held)
                del _held[:]
                S.sock.sendall(b)
    except OSError:
        _exit(0)  # the host has ended
    finally:
        if mine:
            _leave()


def _leave():
    S.critical -= 1
    if S.pending and not S.critical:
        S.pending = False
        if S.busy:
            _raise()


def _raise():
    now = _now()
    if now - S.raised < 0.02:  # the last one is still being handled
        return
    S.raised = now
    raise KeyboardInterrupt


def _sigint(signum, frame):
    S.seen = S.turn
    if S.child or S.forking and frame is not None and frame.f_code.co_filename != _HERE:
        raise KeyboardInterrupt  # out of what user code registered to run at a fork
    if not S.busy:
        S.early = True
        return
    if S.critical and not _stuck(S.writing):
        S.pending = True
        return
    _raise()


def _check_early():
    """Raise the interrupt that came before the cell began, or between two of
    its parts. One that was meant for the cell before is of no interest: the
    host says which it means, and does so before the signal."""
    if not S.early:
        return
    S.early = False
    if S.stop != S.turn and _lead():
        try:
            _read_frames(False)
        finally:
            _end_lead()
    if S.stop == S.turn:
        _raise()


def _stuck(fd):
    """Whether a write waits for a host that does not read: that alone may be
    interrupted, because nothing was written yet."""
    if not fd:
        return False
    p = _poll()
    p.register(fd, 4)  # room to write
    return not p.poll(20)


_rlock = _new_lock()  # held by the thread that reads frames
_rbuf = bytearray()
_inbox = []  # frames for the main thread
_rfds = []  # descriptors that came with them
_asks = {}  # number -> lock that its thread waits for
_answers = {}
_mainev = _new_lock()
_mainev.acquire()
_FDSPACE = 16 * 4 + 16


def _wake(lock):
    try:
        lock.release()
    except RuntimeError:
        pass


def _read_frames(block=True):
    """Read the messages of the host. Only the holder of _rlock calls it."""
    mine = _ident() == S.main
    if mine and S.pending and not S.critical:
        S.pending = False
        if S.busy:
            _raise()
    if block:
        S.poll.poll()  # an interrupt raises here, where nothing can be lost
    if mine:
        S.critical += 1
    try:
        try:
            data, extra, _, _ = S.sock.recvmsg(1 << 16, _FDSPACE, _socket.MSG_DONTWAIT | 0x40000000)
        except BlockingIOError:
            return
        except OSError:
            data, extra = b"", ()
        if not data:
            _exit(0)  # the host is gone
        for level, kind, raw in extra:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                _rfds.extend(memoryview(raw[: _len(raw) & ~3]).cast("i"))
        _rbuf.extend(data)
        while _len(_rbuf) >= 4:
            n = int.from_bytes(_rbuf[:4], "little")
            if _len(_rbuf) < 4 + n:
                break
            req = _loads(bytes(_rbuf[4 : 4 + n]))
            del _rbuf[: 4 + n]
            if req["t"] == "answer":
                lock = _asks.get(req["k"])
                if lock is not None:
                    _answers[req["k"]] = req
                    _wake(lock)
            elif req["t"] == "stop":
                S.stop = req["id"]
            else:
                _inbox.append(req)
                _wake(_mainev)
    finally:
        if mine:
            _leave()


def _lead():
    """Become the thread that reads, if there is none."""
    if _ident() != S.main:
        return _rlock.acquire(False)
    S.critical += 1
    if S.reader == S.main and _rlock.locked():
        _wake(_rlock)  # an interrupt came just before it was released
    got = _rlock.acquire(False)
    if got:
        S.reader = S.main
    S.critical -= 1  # what came meanwhile raises where we wait
    return got


def _end_lead():
    """Let another thread read. The main thread says first that it reads no
    more: it would take the lock of the next reader for its own."""
    mine = _ident() == S.main
    if mine:
        S.critical += 1
        S.reader = 0
    _rlock.release()
    for lock in list(_asks.values()):
        _wake(lock)
    if mine:
        _leave()
    else:
        _wake(_mainev)


def _next():
    """The next request. The main thread waits here between cells."""
    while not _inbox:
        if _lead():
            try:
                if not _inbox:
                    if not _idle_loop():
                        _read_frames()
            finally:
                _end_lead()
        else:
            _mainev.acquire(True, 0.2)
    if _asks:  # another thread reads from now on
        for lock in list(_asks.values()):
            _wake(lock)
    return _inbox.pop(0)


def _idle_loop():
    """Let tasks that a cell left in the event loop go on between cells."""
    loop = S.loop
    if loop is None or loop.is_closed():
        return False
    try:
        if not sys.modules["asyncio"].all_tasks(loop):
            return False
        loop.add_reader(S.ctl, loop.stop)
        _begin_ticks()
        try:
            loop.run_forever()
        finally:
            loop.remove_reader(S.ctl)
            S.running = False
            _flush()
    except BaseException:
        return False
    return not _queued(S.ctl, _FIONREAD)


def _ask(kind, fields):
    if S.child:
        raise RuntimeError("a process that the kernel forked cannot ask its host")
    _flush()
    with _sending:
        S.asked += 1
        n = S.asked
    lock = _new_lock()
    lock.acquire()
    _asks[n] = lock
    try:
        fields.update(t="ask", k=n, kind=kind)
        _send(fields)
        while n not in _answers:
            if _lead():
                try:
                    while n not in _answers:
                        _read_frames()
                finally:
                    _end_lead()
            else:
                lock.acquire(True, 0.2)
        return _answers[n]
    except BaseException:
        _send({"t": "unask", "k": n})
        raise
    finally:
        _asks.pop(n, None)
        _answers.pop(n, None)


# --- streams -------------------------------------------------------------

_file_write = _io.FileIO.write


class _Raw(_io.FileIO):
    """Descriptor 1 or 2, written in the order the host should see."""

    other = -1
    first = None

    def write(self, b):
        if not S.child:
            if self.first is not None:
                try:
                    self.first.flush()
                except (OSError, ValueError):
                    pass
            _order(self.other)
        if S.child or _ident() != S.main:
            return _file_write(self, b)
        # An interrupt that raised between the write and its caller
        # would have the same bytes written again.
        S.critical += 1
        S.writing = 1 if self.first is None else 2
        try:
            return _file_write(self, b)
        finally:
            S.writing = 0
            S.critical -= 1  # what came meanwhile raises with the next tick


_Raw.__name__ = _Raw.__qualname__ = "FileIO"


def _open_streams():
    raw = _Raw(1, "wb", closefd=False)
    raw.other = S.own2
    raw.name = "<stdout>"
    out = _io.TextIOWrapper(_io.BufferedWriter(raw, 1 << 16), encoding="utf-8", errors="backslashreplace")
    out.mode = "w"
    raw = _Raw(2, "wb", closefd=False)
    raw.other, raw.first = S.own1, out
    raw.name = "<stderr>"
    err = _io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
    err.mode = "w"
    return out, err


def _repair():
    """Restore descriptors 1 and 2 if user code closed them."""
    for fd, own in ((1, S.own1), (2, S.own2)):
        try:
            _probe(fd)
        except OSError:
            try:
                _dup2(own, fd)
            except OSError:
                pass
    if S.out.closed or S.err.closed:
        was = S.out, S.err
        S.out, S.err = _open_streams()
        for name in ("stdout", "__stdout__"):
            if _getattr(sys, name, None) is was[0]:
                setattr(sys, name, S.out)
        for name in ("stderr", "__stderr__"):
            if _getattr(sys, name, None) is was[1]:
                setattr(sys, name, S.err)


def _flush():
    for s in (sys.__dict__.get("stdout"), sys.__dict__.get("stderr"), S.out, S.err):
        try:
            s.flush()
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass


def _flush_c():
    """Flush the buffers of the C library."""
    c = sys.modules.get("ctypes")
    try:
        if c is not None:
            c.pythonapi.fflush(None)
    except Exception:
        pass


_tick = _new_lock()
_tick.acquire()


def _flusher():
    """Flushes output without a line end after a short time. It sleeps while
    no cell and no thread of user code runs."""
    # A signal that is handled here does not wake the main thread.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    while True:
        _tick.acquire()
        if S.leave:
            return
        while S.ticking:
            _sleep(0.02 if S.running else 0.04)
            if S.ticking is not None and not S.child:
                try:
                    S.out.flush()
                except BaseException:
                    pass
            if S.child or not S.busy:
                pass
            elif S.pending and not S.critical:
                S.pending, S.seen, S.unseen = False, 0, 0
                _signal.pthread_kill(S.main, _SIGINT)
            elif S.seen != S.turn:
                _interrupt_again()
            if not S.running and _threads() <= S.base:
                S.ticking = False
                if S.running:
                    S.ticking = True


def _interrupt_again():
    """Repeat a signal that came just before a system call of the main thread in
    which it waits: Python would handle the signal when the wait is over. It is
    repeated after a second, because the host sends it after its message."""
    if S.stop != S.turn and _queued(S.ctl, _FIONREAD) and _lead():
        try:
            _read_frames(False)
        finally:
            _end_lead()
    if S.stop == S.turn:
        S.unseen += 1
        if S.unseen % 50 == 0 and _getsignal(_SIGINT) is _sigint:
            _signal.pthread_kill(S.main, _SIGINT)


def _begin_ticks():
    S.running = True
    if not S.ticking:
        S.ticking = True
        _wake(_tick)


_SPAWNS = frozenset(("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "pty.spawn"))


# After these no thread is left to write buffered output.
_LAST = frozenset(("os.kill", "os.killpg", "signal.pthread_kill", "ctypes.dlsym", "ctypes.dlopen", "ctypes.string_at", "ctypes.wstring_at"))


def _last_words(end):
    """os._exit or os.abort, after a flush of the output."""
    def last(*args, **kw):
        if S.prepared and not S.child:
            _flush()
        end(*args, **kw)
    last.__name__ = last.__qualname__ = end.__name__
    last.__doc__ = end.__doc__
    return last


def _audit(name, args):
    if name in _LAST and S.prepared and not S.child:
        _flush()
    if name in _SPAWNS and S.prepared and not S.child:
        _flush()
        _order(S.own1)  # what a child writes comes after what we wrote
        _order(S.own2)


def _before_fork():
    if S.prepared and not S.child:
        _flush()


def _after_fork_in_child():
    if not S.prepared or S.child or S.forking:
        return
    S.child = True
    S.out.reconfigure(line_buffering=True)
    for fd in (S.ctl, S.life):
        try:
            os.close(fd)
        except OSError:
            pass


S.forking = False


class _Stdin(_io.TextIOBase):
    """Standard input that asks the host, line by line, or is at its end."""

    encoding, errors, newlines, mode, name = "utf-8", "surrogateescape", None, "r", "<stdin>"

    @property
    def buffer(self):
        b = self.__dict__.get("_buffer")
        if b is None:
            b = self._buffer = _io.BufferedReader(_StdinRaw(self))
        return b

    def readable(self):
        return True

    def fileno(self):
        return 0

    def isatty(self):
        return False

    def readline(self, size=-1):
        if not S.asking:
            return ""
        try:
            return _input("") + "\n"
        except EOFError:
            return ""

    def read(self, size=-1):
        if not S.asking:
            return ""
        if size is not None and size >= 0:
            return self.readline()
        lines = []
        while True:
            line = self.readline()
            if not line:
                return "".join(lines)
            lines.append(line)

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line


class _StdinRaw(_io.RawIOBase):
    """The bytes of the lines that the host answers."""

    def __init__(self, text):
        self.text, self.rest = text, b""

    def readable(self):
        return True

    def fileno(self):
        return 0

    def readinto(self, b):
        if not self.rest:
            self.rest = self.text.readline().encode("utf-8", "surrogateescape")
        n = min(_len(b), _len(self.rest))
        b[:n], self.rest = self.rest[:n], self.rest[n:]
        return n


def _input(prompt="", secret=False):
    if not S.asking:
        raise EOFError("input() is not available: this run was started without an answer for input(). Put the value into the code instead.")
    a = _ask("input", {"prompt": _str(prompt), "secret": secret})
    if a.get("error") is not None:
        raise EOFError(a["error"] or "there is no input")
    v = a["value"]
    return v.decode("utf-8", "surrogateescape") if _type(v) is bytes else v


def input(prompt="", /):
    """Ask the host for a line of text."""
    return _input(prompt)


def _getpass(prompt="Password: ", stream=None, **_):
    return _input(prompt, True)


# --- tools ---------------------------------------------------------------

class ToolError(RuntimeError):
    """A host tool failed; the message says why."""


class _Tools:
    """Functions of the host: tool.name(key=value, …)."""

    __slots__ = ()

    def __getattr__(self, name):
        if name.startswith("__") or name not in S.tools:
            have = ", ".join(sorted(S.tools)) or "none"
            raise AttributeError("the host offers no tool %r; it offers: %s" % (name, have))

        def call(*args, **kwargs):
            if args:
                if _len(args) != 1 or not _isinstance(args[0], dict):
                    raise TypeError("tool.%s takes keyword arguments, or one dict of them" % name)
                kwargs = dict(args[0], **kwargs)
            data = _json_encode(kwargs)
            a = _ask("tool", {"name": name, "data": data})
            if a.get("error") is not None:
                raise ToolError(a["error"])
            return _json_decode(a["json"]) if a.get("json") else None

        call.__name__ = call.__qualname__ = name
        return call

    def __dir__(self):
        return sorted(S.tools)

    def __repr__(self):
        return "<tools of the host: %s>" % (", ".join(sorted(S.tools)) or "none")


_json_encode = _json_decode = None


def _load_json():
    global _json_encode, _json_decode
    if _json_encode is None:
        from json import JSONDecoder, JSONEncoder
        _json_encode = JSONEncoder(allow_nan=False).encode
        _json_decode = JSONDecoder().decode


# --- display -------------------------------------------------------------

_MIMES = (
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_json_", "application/json"),
    ("_repr_latex_", "text/latex"), ("_repr_pdf_", "application/pdf"), ("_repr_javascript_", "application/javascript"),
)
_CANARY = "_spool_no_object_has_this_method_"
_STATUS = "application/vnd.spool.status+json"


def _text(o):
    """repr for every object, limited in length."""
    try:
        t = _type(o)
        if t in (list, tuple, set, frozenset, dict) and _len(o) > _MAX_ITEMS:
            return _head(o, t)
        s = _repr(o)
        return s if _type(s) is str else _str(s)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:
        return "<%s object whose repr raised %s>" % (_type(o).__name__, _type(e).__name__)


def _head(o, t):
    from itertools import islice
    more = ", … %d more" % (_len(o) - _MAX_ITEMS)
    if t is dict:
        return "{" + ", ".join("%s: %s" % (_text(k), _text(v)) for k, v in islice(o.items(), _MAX_ITEMS)) + more + "}"
    body = ", ".join(_text(v) for v in islice(o, _MAX_ITEMS)) + more
    if t is frozenset:
        return "frozenset({" + body + "})"
    return {list: "[%s]", tuple: "(%s)", set: "{%s}"}[t].replace("%s", body)


def _method(o, name):
    try:
        if _isinstance(o, type):
            return None
        m = _getattr(o, name, None)
        return m if _callable(m) else None
    except Exception:
        return None


def _answers_all(o):
    """Whether an object claims to have every attribute, as mocks do."""
    try:
        return _getattr(o, _CANARY, None) is not None
    except Exception:
        return True  # one that raises here cannot be trusted either


# Types of Python itself, which nobody can give other forms. They are known by their
# ids: the type of a type may define what is equal to it.
_PLAIN_TYPES = frozenset(map(id, (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)))


def _bundle(o):
    data, meta = {}, {}
    if _id(_type(o)) not in _PLAIN_TYPES and not _answers_all(o):
        m = _method(o, "_repr_mimebundle_")
        if m:
            try:
                try:
                    d = m(include=None, exclude=None)
                except TypeError:
                    d = m()
                if _isinstance(d, tuple) and _len(d) == 2 and _isinstance(d[1], dict):
                    meta.update((_str(k), _plain(v)) for k, v in d[1].items())
                if _isinstance(d, tuple):
                    d = d[0] if d else None
                if _isinstance(d, dict):
                    data.update((_str(k), v) for k, v in d.items() if v is not None and "/" in _str(k))
            except Exception:
                pass
        for name, mime in _MIMES:
            if mime in data or mime == "image/jpeg" and "image/png" in data:
                continue
            m = _method(o, name)
            if not m:
                continue
            try:
                v = m()
            except Exception:
                continue
            if _isinstance(v, tuple) and _len(v) == 2 and _isinstance(v[1], dict):
                v, meta[mime] = v[0], _plain(v[1])
            if v is not None:
                data[mime] = v
        figure = sys.modules.get("matplotlib.figure")
        if figure and "image/png" not in data and _isinstance(o, _getattr(figure, "Figure", ())):
            png = _png(o)
            if png:
                data["image/png"] = png
    if "text/plain" not in data:
        data["text/plain"] = _text(o)
    return _clean(data), meta


def _clean(data):
    for mime, v in list(data.items()):
        if _isinstance(v, (bytearray, memoryview)):
            data[mime] = bytes(v)
        elif mime.endswith("json") and _type(v) is not bytes:
            data[mime] = _plain(v)
        elif _type(v) not in (bytes, str):
            data[mime] = _str(v) if _isinstance(v, str) else _text(v)
    return data


def _show(kind, o):
    """Send a display or result frame, after all output before it."""
    if S.quiet is not None and kind == "display":
        S.quiet.append(o)
        return
    _flush()
    o["t"] = kind
    _send(o)


def _json_too(o, data):
    if _type(o) in (dict, list, tuple) and _len(o) <= 100000:
        try:
            data["application/json"] = _plain(o)
        except Exception:
            pass


class DisplayHandle:
    """A display that can be changed later."""

    def __init__(self, display_id):
        self.display_id = display_id

    def display(self, obj, **kw):
        display(obj, display_id=self.display_id, **kw)

    def update(self, obj, **kw):
        update_display(obj, display_id=self.display_id, **kw)

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id


_ids = [0]


def display(*objs, display_id=None, raw=False, metadata=None, update=False, clear=False, include=None, exclude=None, **_):
    """Show objects in the richest form they have.

    With display_id, a later update_display replaces what was shown; True
    makes one up. Returns a handle if there is an id.
    """
    if clear:
        clear_output(wait=True)
    if display_id is True:
        _ids[0] += 1
        display_id = "d%d-%d" % (_getpid(), _ids[0])
    for o in objs:
        if raw and _isinstance(o, dict):
            data, meta = _clean({_str(k): v for k, v in o.items() if "/" in _str(k)}), {}
        else:
            data, meta = _bundle(o)
            _json_too(o, data)
        if include:
            data = {k: v for k, v in data.items() if k in include}
        if exclude:
            data = {k: v for k, v in data.items() if k not in exclude}
        if metadata:
            meta.update(_plain(metadata))
        f = {"b": data}
        if meta:
            f["m"] = meta
        if display_id is not None:
            f["d"] = _str(display_id)
            if update:
                f["u"] = True
        _show("display", f)
    if display_id is not None and not update:
        return DisplayHandle(display_id)


def update_display(obj, *, display_id, **kw):
    """Replace the display that has that display_id."""
    display(obj, display_id=display_id, update=True, **kw)


def clear_output(wait=False):
    """Clear the output of the cell; with wait, before the next output."""
    if S.quiet is not None:
        del S.quiet[:]
        return
    _flush()
    _send({"t": "clear", "wait": bool(wait)})


def _status(op, **fields):
    fields["op"] = op
    _show("display", {"b": {_STATUS: _plain(fields)}})


# --- matplotlib ----------------------------------------------------------

_shown = {}  # id -> figure, for those shown in this cell


def _png(fig):
    try:
        f = _io.BytesIO()
        fig.savefig(f, format="png", bbox_inches="tight")
        _shown[id(fig)] = fig
        return f.getvalue()
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception:
        return None


def _figures():
    """Show the figures that are open and were not shown, and close them."""
    _check_early()
    plt = sys.modules.get("matplotlib.pyplot")
    numbers = _getattr(plt, "get_fignums", None)
    if not _callable(numbers):
        _shown.clear()
        return
    for n in numbers():
        fig = plt.figure(n)
        if id(fig) not in _shown:
            png = _png(fig)
            if png:
                _show("display", {"b": {"image/png": png, "text/plain": _text(fig)}})
        plt.close(fig)
    _shown.clear()


def _plt_show(*args, **kw):
    """Shows the figures that are open."""
    _figures()


def _pyplot_loaded(module):
    module.show = _plt_show


def _publish_display_data(data, metadata=None, *, transient=None, update=False, **_):
    """Shows a bundle of MIME types, as IPython's function does."""
    display(data, raw=True, metadata=metadata, update=update, display_id=(transient or {}).get("display_id"))


def _ipython_display_loaded(module):
    """IPython's own functions print the text of an object where no IPython
    shell runs; ours show it."""
    ours = (("display", display), ("update_display", update_display), ("clear_output", clear_output),
            ("publish_display_data", _publish_display_data), ("DisplayHandle", DisplayHandle))
    for name, f in ours:
        if name in module.__dict__:
            setattr(module, name, f)


# What is changed in a module once it is imported.
_LOADED = {
    "matplotlib.pyplot": _pyplot_loaded,
    "IPython.core.display_functions": _ipython_display_loaded,
    "IPython.core.display": _ipython_display_loaded,  # before IPython 7.23
}


class _Finder:
    """Replaces show() of pyplot and display() of IPython by functions that send
    displays."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        loaded = _LOADED.get(name)
        if loaded is None:
            return None
        for f in sys.meta_path:
            find = _getattr(f, "find_spec", None)
            if f is _Finder or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                break
        else:
            return None
        load = _getattr(spec.loader, "exec_module", None)
        if load is not None:
            def exec_module(module):
                load(module)
                loaded(module)
            try:
                spec.loader.exec_module = exec_module
            except Exception:
                pass
        return spec


# --- cells ---------------------------------------------------------------

_order_of_sources = []


def _remember(name, src):
    """Let tracebacks and inspect find the source."""
    lines = src.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    cache = _getattr(sys.modules.get("linecache"), "cache", None)
    if cache is None:
        import linecache
        cache = linecache.cache
    cache[name] = (_len(src), None, lines, name)
    _order_of_sources.append(name)
    if _len(_order_of_sources) > _KEPT_SOURCES:
        cache.pop(_order_of_sources.pop(0), None)


def _quiet(src):
    """Whether the source ends with a semicolon."""
    if ";" not in src:
        return False
    import tokenize
    last = None
    try:
        for t in tokenize.generate_tokens(_io.StringIO(src).readline):
            if t.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT):
                last = t.string
    except Exception:
        return False
    return last == ";"


_STATEMENTS = frozenset("assert async break class continue def del for from global if import match nonlocal pass raise return try type while with".split())

_NO_EXPRESSION = ("", " ", "\t", "\f", "%", "!")  # what it does not begin with


def _parse_expression(src, name):
    """The code of a cell that is one expression on one line, or None for any
    other, and for one that looks as if it were another."""
    if "\n" in src or "=" in src or ";" in src or src[:1] in _NO_EXPRESSION or src.partition(" ")[0] in _STATEMENTS:
        return None
    try:
        return _compile(src, name, "eval", _TOP_AWAIT | S.future, True)
    except Exception:
        return None  # _parse compiles it, or raises what a cell raises


def _parse(src, name):
    """The code of a cell: the part to execute and the part to evaluate."""
    c = _parse_expression(src, name)
    if c is not None:
        return None, c
    try:
        tree = _compile(src, name, "exec", _AST_ONLY | _TOP_AWAIT | S.future, True)
    except SyntaxError:
        changed = _magic_source(src)
        if changed is None:
            raise
        tree = _compile(changed, name, "exec", _AST_ONLY | _TOP_AWAIT | S.future, True)
    body, last = tree.body, None
    import _ast
    for s in body:
        if _type(s) is _ast.ImportFrom and s.module == "__future__":
            import __future__
            for a in s.names:
                S.future |= _getattr(_getattr(__future__, a.name, None), "compiler_flag", 0)
    if body and _type(body[-1]) is _ast.Expr and not _quiet(src):
        last = body.pop()
    flags = _TOP_AWAIT | S.future
    first = _compile(tree, name, "exec", flags, True) if body else None
    last = _compile(_ast.Expression(last.value), name, "eval", flags, True) if last is not None else None
    return first, last


def _parse_script(src, name):
    """The code of a script: Python, or else a cell without a result."""
    try:
        return _compile(src, name, "exec", 0, True)
    except SyntaxError:
        try:
            return _compile(_magic_source(src) or src, name, "exec", _TOP_AWAIT, True)
        except SyntaxError:
            pass
        raise


def _execute(src, name, script=False):
    first, last = (_parse_script(src, name), None) if script else _parse(src, name)
    for c in (first, last):
        if c is not None and c.co_flags & _CORO:
            return _run_async(first, last)
    if first is not None:
        _exec(first, S.ns)
    if last is not None:
        return _eval(last, S.ns)


def _run_async(first, last):
    import asyncio
    import contextvars
    loop = S.loop
    if loop is None or loop.is_closed():
        loop = S.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    after = []

    async def both():
        v = None
        try:
            for c in (first, last):
                if c is not None:
                    v = _eval(c, S.ns)
                    if c.co_flags & _CORO:
                        v = await v
        finally:
            after.append(contextvars.copy_context())
        return v if last is not None else None

    task = loop.create_task(both())
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                pass
        raise
    finally:
        for context in after:  # what the cell set stays set
            for var, value in context.items():
                if var.get(_CANARY) is not value:
                    var.set(value)


def _guard(f):
    """Call f and allow interrupts in it. Returns its value and its exception;
    no exception passes through."""
    v = exc = None
    try:
        try:
            S.busy = True
            v = f()
            S.busy = False
        except BaseException as e:
            S.busy = False
            exc = e
    except BaseException as e:  # it came while the first was being caught
        S.busy = False
        exc = e
    S.busy = False
    return v, exc


def _describe(e, name):
    """The frame about an exception: no frame of ours, and no exception."""
    kind = _type(e).__name__
    try:
        text = _str(e)
        if _isinstance(e, SystemExit) and _isinstance(e.code, int):
            text = _str(int(e.code))  # a bool is a code, too
    except BaseException:
        text = "<message that cannot be shown>"
    try:
        tb = _where_interrupted(e)
        if tb is None:
            tb = _traceback_text(e, name)
    except BaseException:
        tb = "%s: %s" % (kind, text)
    if _isinstance(e, ModuleNotFoundError) and _type(e.name) is str and not e.path:
        package = e.name.partition(".")[0]
        if not _is_beside(package):
            tb += "hint: %pip install " + package + "\n"
    if _isinstance(e, KeyboardInterrupt) and not text:
        text = "interrupted"
    return {"t": "error", "name": kind, "value": text, "tb": tb}


def _traceback_text(e, name):
    """The traceback, as Python shows it."""
    import traceback
    if _isinstance(e, SyntaxError) and e.filename == name and not _user_frames(e):
        return "".join(traceback.format_exception_only(_type(e), e))
    t = traceback.TracebackException(_type(e), e, _user_part(e.__traceback__), **_COMPACT)
    return "".join(_without_us(t).format())


def _where_interrupted(e):
    """The traceback of an interrupt, without the marks below lines, or None if it
    is more than a few frames, or that of a program. An interrupt is to end a cell
    at once, and what Python does to show it takes longer than all the rest."""
    if S.once or _type(e) is not KeyboardInterrupt or e.args or e.__cause__ is not None or e.__context__ is not None or _getattr(e, "__notes__", None) or hasattr(sys, "tracebacklimit"):
        return None
    import linecache
    lines, tb = ["Traceback (most recent call last):"], e.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_filename != _HERE:
            if _len(lines) > 20:
                return None
            lines.append('  File "%s", line %d, in %s' % (code.co_filename, tb.tb_lineno, code.co_name))
            linecache.checkcache(code.co_filename)
            line = linecache.getline(code.co_filename, tb.tb_lineno, tb.tb_frame.f_globals).strip()
            if line:
                lines.append("    " + line)
        tb = tb.tb_next
    return "\n".join(lines) + "\nKeyboardInterrupt\n"


def _is_beside(package):
    """Whether a file or directory of that name is beside the script or in the
    working directory: then it is the user's own, and not to be installed."""
    file = S.ns.get("__file__")
    dirs = ["."]
    if _type(file) is str:
        dirs.append(os.path.dirname(file))
    for d in dirs:
        path = os.path.join(d, package)
        if os.path.isfile(path + ".py") or os.path.isdir(path):
            return True
    return False


def _strip(tb):
    while tb is not None and tb.tb_frame.f_code.co_filename == _HERE:
        tb = tb.tb_next
    return tb


def _user_part(tb):
    """A traceback without the frames of ours, also those of our handler of an
    interrupt: it takes long to show them."""
    theirs = []
    while tb is not None:
        if tb.tb_frame.f_code.co_filename != _HERE:
            theirs.append(tb)
        tb = tb.tb_next
    rest = None
    for tb in reversed(theirs):
        rest = _Traceback(rest, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return rest


def _user_frames(e):
    tb = e.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename != _HERE:
            return True
        tb = tb.tb_next
    return False


def _without_us(t):
    seen, todo = set(), [t]
    while todo:
        x = todo.pop()
        if x is None or id(x) in seen:
            continue
        seen.add(id(x))
        x.stack[:] = [f for f in x.stack if f.filename != _HERE]
        todo += [x.__cause__, x.__context__]
        todo += _getattr(x, "exceptions", None) or []
    return t


def _run_module(name, archive):
    """Run a module as __main__: that of a directory or an archive, which is
    first in sys.path, or any other."""
    import runpy
    runpy._run_module_as_main(name, not archive)


def _begin_path(file, module):
    """Let sys.path begin as Python has it: with the directory of the script,
    with the directory or archive that runs, or with the working directory.
    What user code changed there stays."""
    first = ""
    if module:
        first = file or os.getcwd()
    elif file:
        first = os.path.dirname(os.path.realpath(file))
    path = sys.path
    if _type(path) is not list or S.first == first:
        return
    if S.first is None:  # PYTHONSAFEPATH: only what was named
        if module and file and path[:1] != [first]:
            path.insert(0, first)
        return
    if first and path[:1] == [S.first]:
        del path[0]
    if path[:1] != [first]:
        path.insert(0, first)
    S.first = first


def _become(req):
    """Make __main__, sys.argv and sys.path those of the script, or of code
    that is in no file. Returns the path of the script."""
    file, args, module = req.get("file") or "", req.get("args"), req.get("module")
    _begin_path(file, module)
    if args:
        sys.argv = list(args)
    if module:
        if sys.version_info < (3, 14):
            S.ns.setdefault("__annotations__", {})
        if args and hasattr(sys, "orig_argv"):
            sys.orig_argv = [sys.executable] + (list(args) if file else ["-m", module] + args[1:])
        return ""
    if file:
        ns = S.ns
        ns["__file__"], ns["__cached__"] = file, None
        if os.path.exists(file):
            import importlib.machinery
            ns["__loader__"] = importlib.machinery.SourceFileLoader("__main__", file)
        if sys.version_info < (3, 14):
            ns.setdefault("__annotations__", {})
        if args and hasattr(sys, "orig_argv"):
            sys.orig_argv = [sys.executable] + list(args)
    return file


def _end_program():
    """End a program as Python does: wait for its threads and call the functions
    that it registered with atexit."""
    t = sys.modules.get("threading")
    if t is not None:
        _getattr(t, "_shutdown", lambda: None)()
    import atexit
    atexit._run_exitfuncs()
    if t is None or t.active_count() == 1:
        # Python lets go of the names of the program, which calls __del__.
        for private in (True, False):
            for k in list(S.ns):
                if k[:2] != "__" and (k[:1] == "_") == private:
                    S.ns[k] = None


def _hook(e):
    """Let the program's own sys.excepthook report an exception, as Python does.
    It returns whether there is one."""
    hook = _getattr(sys, "excepthook", None)
    if hook is None or hook is sys.__excepthook__ or _isinstance(e, SystemExit):
        return False
    hook(_type(e), e, _strip(e.__traceback__))
    _flush()
    return True


def _cell(req):
    S.turn, S.silent = req["id"], req.get("silent", False)
    counted = not S.silent and req.get("count", True)
    S.serial += 1
    if counted:
        S.count += 1
        name = "<cell %d>" % S.count
    else:
        name = "<cell %d.%d>" % (S.count, S.serial)
    src = req["code"]
    script = _become(req)
    if script:
        name = script
    if _getsignal(_SIGINT) is not _sigint:
        _setsignal(_SIGINT, _sigint)
    _repair()
    S.pending, S.raised, S.critical = False, 0.0, 0
    S.seen = S.unseen = 0
    _begin_ticks()
    status = "ok"

    def run():
        _check_early()
        if req.get("module"):
            return _run_module(req["module"], req.get("file"))
        _remember(name, src)
        return _execute(src, name, bool(script))

    if req.get("keep") and counted:
        _guard(lambda: _keep(src, None))
    v, exc = _guard(run)
    if S.child:
        _end_child(exc, name)
    if exc is None and v is not None and not S.silent:
        def show():
            _check_early()
            S.ns["_"] = v
            if req.get("keep") and counted:
                _keep(src, v)
            data, meta = _bundle(v)
            f = {"t": "result", "b": data, "n": S.count if counted else 0}
            if meta:
                f["m"] = meta
            _flush()
            return f
        frame, exc = _guard(show)
        if exc is None:
            _send(frame, hold=True)
    del v
    if exc is not None:
        status = "interrupted" if _isinstance(exc, KeyboardInterrupt) else "error"
        _guard(_flush)
        printed = S.once and _guard(lambda: _hook(exc))[0] is True
        frame, again = _guard(lambda: _describe(exc, name))
        if again is not None:
            frame = {"t": "error", "name": _type(exc).__name__, "value": "", "tb": _type(exc).__name__}
        if printed:
            frame["printed"] = True
        _send(frame, hold=not S.once)
    if "matplotlib.pyplot" in sys.modules or _shown:
        _, again = _guard(_figures)
        if _isinstance(again, KeyboardInterrupt):
            status = "interrupted"
    exc = None
    if S.once:
        _guard(_end_program)
    if "ctypes" in sys.modules:
        _guard(_flush_c)
    _repair()
    _guard(_flush)
    S.running = False
    S.pending = False
    S.quiet = None
    _send({"t": "done", "status": status, "n": S.count if counted else 0})
    S.turn = 0


def _keep(src, v):
    """Let later cells find a cell and its result as In and Out, as at the
    prompt of IPython. v is None if there is no result."""
    ns, n = S.ns, S.count
    if _type(ns.get("In")) is not list:
        ns["In"] = [""]
    if _type(ns.get("Out")) is not dict:
        ns["Out"] = {}
    cells = ns["In"]
    cells.extend([""] * (n - _len(cells)))
    if _len(cells) == n:
        cells.append(src)
    if v is not None and v is not ns["Out"]:
        ns["Out"][n] = ns["_%d" % n] = v


_inspector = None


def _inspect(req):
    """Answer a question about the namespace. The host sends the code that can
    do that along with the question."""
    def run():
        global _inspector
        if _inspector is None:
            ns = {"__name__": "spool_inspect", "__builtins__": builtins}
            _exec(_compile(req["code"], "<inspect>", "exec", 0, True), ns)
            _inspector = ns["answer"]
        return _inspector(req["q"], S.ns, (tuple(_LINE), tuple(_CELL)))
    v, exc = _guard(run)
    if _isinstance(exc, KeyboardInterrupt):
        S.early = True  # it may be meant for the cell that waits
    if exc is not None:
        v = {"error": "%s: %s" % (_type(exc).__name__, exc)}
    _send({"t": "inspected", "k": req["k"], "v": v})


def _end_child(exc, name):
    """A process that user code forked came to the end of the cell."""
    try:
        code = 0
        if exc is not None:
            if _isinstance(exc, SystemExit):
                code = exc.code if _isinstance(exc.code, int) else 0 if exc.code is None else 1
            else:
                code = 1
                S.err.write(_describe(exc, name)["tb"])
        S.out.flush()
        S.err.flush()
    finally:
        _exit(code & 255)


# --- magics --------------------------------------------------------------

def _magic_source(src):
    """The source with its magic lines turned into calls, each on its line;
    None if there are none. Only called for source that is not Python, and
    only a logical line that begins with % or ! is looked at: what is inside
    strings, brackets and continued lines stays as it is."""
    import re
    first = re.match(r"(?:[ \t]*\n)*[ \t]*%%([A-Za-z_]\w*)([^\n]*)(?:\n|$)", src)
    if first:
        pad = src[: first.start(1)].count("\n")
        return "\n" * pad + "__spool_magic__('%%%%', %r, %r, %r)" % (first.group(1), first.group(2).strip(), src[first.end():])
    begin = re.compile(r"([ \t]*)(?:([A-Za-z_][\w.]*(?:[ \t]*,[ \t]*[A-Za-z_]\w*)*)[ \t]*=[ \t]*)?(%|!!?)(.*)", re.S)
    token = re.compile(r"#[^\n]*|'''|\"\"\"|'|\"|[()\[\]{}]|\\\r?\n|\\.", re.S)
    out, found = [], False
    lines = re.findall(r"[^\n]*\n|[^\n]+", src)
    i, depth, quote = 0, 0, None  # inside brackets; inside a string
    while i < _len(lines):
        line = lines[i]
        i += 1
        m = begin.match(line) if not depth and quote is None else None
        if m and (m.group(3) != "%" or re.match(r"[A-Za-z_]", m.group(4))):
            indent, target, sign, rest = m.groups()
            extra = 0
            while rest.rstrip("\r\n").endswith("\\") and i < _len(lines):
                rest = rest.rstrip("\r\n")[:-1] + (" " if sign == "%" else "\\\n") + lines[i]
                i += 1
                extra += 1
            rest = rest.rstrip("\r\n")
            if sign == "%":
                name, _, args = rest.partition(" ")
                call = "__spool_magic__('%%', %r, %r, %r)" % (name.strip(), args.strip(), bool(target))
            else:
                call = "__spool_magic__('!', '', %r, %r)" % (rest.strip(), bool(target) or sign == "!!")
            out.append(indent + (target + " = " if target else "") + call + "\n" * (1 + extra))
            found = True
            continue
        out.append(line)
        pos, continued = 0, False
        while True:
            if quote is not None:
                end = re.compile(r"\\.|" + quote + (r"|\n" if _len(quote) == 1 else ""), re.S).search(line, pos)
                if end is None:
                    break
                pos = end.end()
                if end.group() in (quote, "\n"):
                    quote = None
                continue
            t = token.search(line, pos)
            if t is None:
                break
            pos, s = t.end(), t.group()
            if s[0] in "'\"":
                quote = s
            elif s in "([{":
                depth += 1
            elif s in ")]}":
                depth = max(0, depth - 1)
            elif s[0] == "\\" and s[-1] == "\n":
                continued = True
        if continued and i < _len(lines) and not depth and quote is None:
            out.append(lines[i])  # cannot begin with a magic
            i += 1
    return "".join(out) if found else None


class UsageError(Exception):
    """The arguments of a magic are wrong."""


class Lines(list):
    """The lines of a command's output."""

    returncode = 0

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)

    @property
    def l(self):
        return list(self)


def _expand(text):
    """Replace {name} by the value of a variable, if there is one."""
    import re

    def value(m):
        head = re.match(r"[A-Za-z_]\w*", m.group(1)).group()
        if head not in S.ns:
            return m.group()
        try:
            return _str(_eval(m.group(1), S.ns))
        except Exception:
            return m.group()
    return re.sub(r"\{([A-Za-z_]\w*(?:\.\w+|\[\w+\]|\['[^'\]]*'\])*)\}", value, text)


def _child(argv, shell=False, capture=False, text=None):
    """Run a command, with its output where ours goes, or captured."""
    import subprocess
    import tempfile
    stdin = subprocess.DEVNULL
    if text is not None:
        stdin = tempfile.TemporaryFile()
        stdin.write(text.encode("utf-8", "surrogateescape"))
        stdin.seek(0)
    p = subprocess.Popen(argv, shell=shell, stdin=stdin, stdout=subprocess.PIPE if capture else None,
                         stderr=subprocess.STDOUT if capture else None)
    try:
        data = p.communicate()[0]
    except BaseException:
        p.send_signal(_SIGINT)
        try:
            p.wait(1)
        except BaseException:
            p.kill()
            p.wait()
        raise
    finally:
        if text is not None:
            stdin.close()
    return p.returncode, data.decode("utf-8", "replace") if capture else None


def _shell(cmd, capture):
    code, text = _child(_expand(cmd), shell=True, capture=capture)
    S.ns["_exit_code"] = code
    if capture:
        lines = Lines(text.splitlines())
        lines.returncode = code
        return lines


def _statement(src, name="<magic>"):
    _remember(name, src)
    return _execute(src, name)


def _line_pip(args, value):
    import importlib
    _send({"t": "pause"})
    try:
        code, _ = _child([sys.executable, "-m", "pip"] + _split(_expand(args)))
    finally:
        _send({"t": "resume"})
    importlib.invalidate_caches()
    _status("pip", args=args, exit_code=code)
    if code:
        raise UsageError("pip ended with code %d" % code)


def _split(args):
    import shlex
    return shlex.split(args)


def _line_cd(args, value):
    os.chdir(os.path.expanduser(_expand(args).strip("'\"") or "~"))
    _status("cd", path=os.getcwd())


def _line_env(args, value):
    name, sep, val = args.partition("=")
    if not sep and " " in args.strip():
        name, _, val = args.strip().partition(" ")
        sep = "="
    if not name.strip():
        return dict(os.environ)
    if not sep:
        return os.environ.get(name.strip())
    os.environ[name.strip()] = _expand(val.strip())
    _status("env", key=name.strip(), action="set")


def _line_run(args, value):
    argv = _split(_expand(args))
    if not argv:
        raise UsageError("%run needs a file")
    with open(argv[0], "rb") as f:
        code = _compile(f.read(), os.path.abspath(argv[0]), "exec", 0, True)
    ns = {"__name__": "__main__", "__file__": argv[0], "__builtins__": builtins}
    before = sys.argv
    sys.argv = argv
    try:
        _exec(code, ns)
    except SystemExit as e:
        if e.code not in (None, 0):
            raise
    finally:
        sys.argv = before
        S.ns.update((k, v) for k, v in ns.items() if not k.startswith("__"))


def _line_time(args, value, body=None):
    import time
    cpu, wall = time.process_time(), time.perf_counter()
    v = _statement(args if body is None else body)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print("CPU time: %s, wall time: %s" % (_seconds(cpu), _seconds(wall)))
    return v


def _seconds(s):
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if s * scale >= 1:
            break
    else:
        unit, scale = "ns", 1e9
    return "%.3g %s" % (s * scale, unit)


def _line_timeit(args, value, body=None):
    import re
    import timeit
    options = {"n": None, "r": "7"}
    m = re.match(r"\s*(?:-([nr])\s*(\d+)\s*)", args)
    while m:
        options[m.group(1)] = m.group(2)
        args = args[m.end():]
        m = re.match(r"\s*(?:-([nr])\s*(\d+)\s*)", args)
    t = timeit.Timer(args if body is None else body, "pass" if body is None or not args.strip() else args, globals=S.ns)
    number = int(options["n"] or 0)
    if not number:
        number = 1
        while number < 10 ** 9 and t.timeit(number) < 0.1:
            number *= 10
    runs = [x / number for x in t.repeat(int(options["r"]), number)]
    mean = sum(runs) / _len(runs)
    dev = (sum((x - mean) ** 2 for x in runs) / _len(runs)) ** 0.5
    print("%s ± %s per loop (mean ± std. dev. of %d runs, %d loops each)" % (_seconds(mean), _seconds(dev), _len(runs), number))


def _line_who(args, value):
    names = sorted(k for k in S.ns if not k.startswith("_"))
    print("\n".join("%s: %s" % (n, _type(S.ns[n]).__name__) for n in names) or "no names are defined")


def _line_reset(args, value):
    for k in [k for k in S.ns if not k.startswith("__")]:
        del S.ns[k]
    _status("reset")


def _line_pwd(args, value):
    return os.getcwd()


def _line_ls(args, value):
    _shell("ls " + args, False)


def _line_nothing(args, value):
    """Asks for what is always so here."""


def _cell_bash(args, body, shell="bash"):
    code, _ = _child([shell] + (_split(args) or ["-s"]), text=body)
    S.ns["_exit_code"] = code
    if code:
        raise UsageError("%s ended with code %d" % (shell, code))


def _cell_writefile(args, body):
    argv = _split(_expand(args))
    append = argv[:1] == ["-a"]
    if _len(argv) != 1 + append:
        raise UsageError("%%writefile needs one file name")
    path = os.path.expanduser(argv[-1])
    with open(path, "a" if append else "w", encoding="utf-8", newline="") as f:
        f.write(body)
    print("%s %s" % ("Appended to" if append else "Wrote", path))
    _status("writefile", path=os.path.abspath(path), chars=_len(body))


class Captured:
    """The output that %%capture kept."""

    def __init__(self, out, err, shown):
        self.stdout, self.stderr, self.outputs = out, err, shown

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for f in self.outputs:
            _show("display", dict(f))

    __call__ = show

    def __repr__(self):
        return self.stdout


def _cell_capture(args, body):
    before = sys.stdout, sys.stderr
    out, err = sys.stdout, sys.stderr = _io.StringIO(), _io.StringIO()
    S.quiet = shown = []
    try:
        _statement(body, "<cell %d>" % S.count)
    finally:
        sys.stdout, sys.stderr = before
        S.quiet = None
        for name in _split(args):
            if not name.startswith("-"):
                S.ns[name] = Captured(out.getvalue(), err.getvalue(), shown)


_LINE = {
    "pip": _line_pip, "cd": _line_cd, "pwd": _line_pwd, "ls": _line_ls, "env": _line_env, "set_env": _line_env,
    "time": _line_time, "timeit": _line_timeit, "run": _line_run, "who": _line_who, "whos": _line_who,
    "reset": _line_reset, "matplotlib": _line_nothing,
}
_CELL = {
    "bash": _cell_bash, "sh": lambda args, body: _cell_bash(args, body, "sh"), "writefile": _cell_writefile,
    "capture": _cell_capture,
    "time": lambda args, body: _line_time(args, True, body),
    "timeit": lambda args, body: _line_timeit(args, True, body),
}


def _magic(sign, name, args, more):
    if sign == "!":
        return _shell(args, more)
    f = (_CELL if sign == "%%" else _LINE).get(name)
    if f is None:
        known = ", ".join(sign + n for n in sorted(_CELL if sign == "%%" else _LINE))
        raise UsageError("there is no magic %s%s; there are %s" % (sign, name, known))
    return f(args, more)


# --- life ----------------------------------------------------------------

def _private(fd):
    """Move a descriptor to where user code does not look."""
    import resource
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft < 0 or soft > 1024:
        soft = 1024
    n = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(10, soft - 24))
    if fd > 2:
        os.close(fd)
    return n


def _tie(life):
    """Have the kernel of the system end this process group when the host is
    gone, whatever runs here: its death closes the other end of this pipe."""
    fd = os.open("/proc/self/fd/%d" % life, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.close(life)
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(fd, 10, 9)  # F_SETSIG, SIGKILL
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | fcntl.FASYNC)
    p = select.poll()
    p.register(fd, 0)
    if p.poll(0):
        _exit(0)
    return fd


def _attach(ctl, life, dump):
    """Take over the descriptors of a kernel."""
    S.pid, S.main = _getpid(), _ident()
    S.ctl = _private(ctl)
    S.life = _private(_tie(life))
    S.dump = _private(dump)
    S.own1, S.own2 = _private(1), _private(2)
    S.sock = _socket.socket(fileno=S.ctl)
    S.poll = select.poll()
    S.poll.register(S.ctl, select.POLLIN)
    import faulthandler
    faulthandler.enable(S.dump)
    faulthandler.register(_DUMP_SIGNAL, S.dump, all_threads=True)
    S.base = _threads() + 1  # a fork does not forget those it did not keep
    _thread.start_new_thread(_flusher, ())


_DUMP_SIGNAL = 60


def _prepare():
    """The preparation that needs no kernel."""
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    S.ns = main.__dict__
    builtins.display, builtins.update_display = display, update_display
    builtins.clear_output = clear_output
    builtins.tool = _Tools()
    builtins.input = input
    builtins.__spool_magic__ = _magic
    for c in (UsageError, ToolError, Lines, Captured, DisplayHandle):
        c.__module__ = "builtins"
    sys.modules["__main__"] = main
    sys.meta_path.insert(0, _Finder)
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
    os._exit, os.abort = _last_words(os._exit), _last_words(os.abort)
    sys.addaudithook(_audit)
    return main


def _begin(req):
    """Apply the configuration of a kernel before it is ready."""
    env = req.get("env")
    if env:
        for k, v in env.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v
    if req.get("cwd"):
        os.chdir(req["cwd"])
    S.asking = req.get("input") == "ask"
    S.once = req.get("once", False)
    S.tools = tuple(req.get("tools") or ())
    if S.tools:
        _load_json()
    for name in req.get("groups") or ():
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")  # the writing process
        os.close(fd)
    for name, value in (req.get("limits") or {}).items():
        import resource
        which = _getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (value, hard if hard != resource.RLIM_INFINITY and hard < value else value))
    if S.asking:
        import getpass
        getpass.getpass = _getpass
    S.prepared = True


def _streams():
    S.out, S.err = _open_streams()
    sys.stdout = sys.__stdout__ = S.out
    sys.stderr = sys.__stderr__ = S.err
    sys.stdin = sys.__stdin__ = _Stdin()
    sys.argv = [""]
    if not _getattr(sys.flags, "safe_path", False):
        if sys.path[:1] != [""]:
            sys.path.insert(0, "")
        S.first = ""
    _setsignal(_SIGINT, _sigint)


def _initialise(src):
    """Run the code that the host wants every kernel to have run. If it fails,
    there is no kernel."""
    if not src:
        return

    def run():
        _remember("<init>", src)
        _execute(src, "<init>")
    _, exc = _guard(run)
    if exc is not None:
        _guard(_flush)
        _send({"t": "failed", "error": _describe(exc, "<init>")["tb"].strip()})
        _exit(1)
    _guard(_flush)


def _ready():
    _send({"t": "ready", "pid": _getpid(), "version": sys.version.split()[0], "executable": sys.executable})


def _serve():
    """The life of a kernel. It ends with the process."""
    while True:
        try:
            req = _next()
            t = req["t"]
            if t == "cell":
                _cell(req)
            elif t == "fork":
                _fork(req)
            elif t == "inspect":
                _inspect(req)
            elif t == "alive":
                _send({"t": "alive"})
            elif t == "exit":
                _shutdown()
        except BaseException as e:
            S.busy = False
            if S.child:
                _end_child(e, "")
            if S.turn:
                _send(_describe(e, ""))
                _send({"t": "done", "status": "error", "n": S.count})
                S.turn = 0


def _shutdown():
    """Exit as a program does: atexit, threads, buffers."""
    _begin_ticks()
    _guard(_end_program)
    _guard(_flush_c)
    _guard(_flush)
    _exit(0)


def _limits_of_control_groups(fds):
    for fd in fds:  # "0" is the writing process
        os.write(fd, b"0")
        os.close(fd)


# --- forking -------------------------------------------------------------

class _Clone:
    """fork(2) whose child is a child of our parent, born in a control group.

    No other thread may run Python meanwhile. os.fork makes the lock of the
    interpreter anew before the child runs any bytecode; here there is some
    between the system call and PyOS_AfterFork_Child. If another thread had
    asked for that lock, the child would hand it over there, and wait for ever
    (drop_gil, for the switch) for a thread that it does not have."""

    def __init__(self):
        import ctypes
        self.ctypes = ctypes
        self.lib = ctypes.PyDLL(None, use_errno=True)
        self.lib.syscall.restype = ctypes.c_long
        self.api = ctypes.pythonapi
        self.args = (ctypes.c_uint64 * 11)()
        addr = ctypes.c_void_p()
        if self.lib.prctl(40, ctypes.byref(addr), 0, 0, 0) != 0 or not addr.value:  # PR_GET_TID_ADDRESS
            raise OSError(ctypes.get_errno(), "find the address of the thread id")
        self.tid = addr.value  # where libc keeps it: the child's must be right

    def __call__(self, group):
        a = self.args
        # CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, and CLONE_INTO_CGROUP
        a[0] = 0x8000 | 0x01000000 | 0x00200000 | (0x200000000 if group >= 0 else 0)
        a[2] = self.tid
        a[10] = group if group >= 0 else 0
        self.api.PyOS_BeforeFork()
        pid = self.lib.syscall(435, self.ctypes.byref(a), self.ctypes.c_size_t(88))
        if pid == 0:
            self.api.PyOS_AfterFork_Child()
        else:
            self.api.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(self.ctypes.get_errno(), "clone3")
        return pid


def _reseed():
    """Forks must not draw the same random numbers."""
    r = sys.modules.get("random")
    if r is not None:
        r.seed()
    n = sys.modules.get("numpy.random")
    if n is not None:
        try:
            n.seed()
        except Exception:
            pass


def _born(fds):
    """The first steps of a process that was forked to be a kernel."""
    os.setsid()
    out, err, ctl, life, dump, group = fds[:6]
    _limits_of_control_groups(fds[6:])
    _dup2(out, 1)
    _dup2(err, 2)
    for fd in (out, err, group):
        os.close(fd)
    S.forking = False
    _reseed()
    _attach(ctl, life, dump)


def _refuse_fork():
    """Why a live kernel cannot be forked now, or nothing."""
    if _threads() > S.base:
        return "it has %d threads, of which a fork would keep only one" % (_threads() - S.base + 1)
    loop = S.loop
    if loop is not None and not loop.is_closed():
        if sys.modules["asyncio"].all_tasks(loop):
            return "it has asyncio tasks that are not done"
        loop.close()
        S.loop = None
    ours = {S.ctl, S.life, S.dump, S.own1, S.own2} | set(_rfds)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd <= 2 or fd in ours:
            continue
        try:
            target = os.readlink("/proc/self/fd/" + name)
            mode = fcntl.fcntl(fd, fcntl.F_GETFL) & 3
        except OSError:
            continue  # the one we list with
        if target.startswith(("socket:", "pipe:", "anon_inode:")):
            return "it has descriptor %d open, %s, which both would use" % (fd, target.split(":[")[0])
        if mode != 0 and target.startswith("/") and not target.startswith("/dev/"):
            return "it has %s open for writing" % target
    try:
        with open("/proc/self/task/%d/children" % S.pid) as f:
            if f.read().strip():
                return "it has child processes"
    except OSError:
        pass
    return None


def _stop_ticks():
    """End our own thread, so that only the one that forks is left: it wants
    the lock of the interpreter every now and then (see _Clone)."""
    S.ticking, S.leave = False, True
    _wake(_tick)
    for _ in range(1000):
        if _len(os.listdir("/proc/self/task")) == 1:
            return True
        _sleep(0.001)
    return False


def _restart_ticks():
    if S.leave:
        S.leave = False
        _reset_locks()
        S.base = _threads() + 1
        _thread.start_new_thread(_flusher, ())


def _fork(req):
    global _tick
    fds = list(_rfds)
    try:
        _guard(_flush)
        _order(S.own1)
        _order(S.own2)
        # Our own thread ends first: only the forking one would live on.
        S.ticking = False
        why = _refuse_fork()
        if why is None:
            tasks = _len(os.listdir("/proc/self/task")) - 2  # this one and our own
            if tasks > 0:
                why = "a library has %d threads running" % tasks
            elif not _stop_ticks():
                why = "its own thread does not end"
        if why is not None:
            raise RuntimeError(why)
        clone = _Clone()
        S.forking = True
        S.critical += 1
        try:
            pid = clone(fds[5])
            if pid == 0:
                del _rfds[:], _inbox[:], _rbuf[:]
                for fd in (S.life, S.dump, S.own1, S.own2):
                    os.close(fd)
                S.sock.close()
                # No other thread exists here to release these.
                _reset_locks()
                _born(fds)
                _begin(req)
                S.out, S.err = _rebind()
        finally:
            S.critical -= 1
            S.forking = False
    except BaseException as e:
        _restart_ticks()
        del _rfds[:]
        for fd in fds:
            os.close(fd)
        _send({"t": "forked", "error": _str(e) or _type(e).__name__})
        return
    if pid == 0:
        _ready()
        return
    _restart_ticks()
    del _rfds[:]
    for fd in fds:
        os.close(fd)
    _send({"t": "forked", "pid": pid})


def _reset_locks():
    global _tick, _sending, _rlock, _mainev
    _tick, _sending, _rlock, _mainev = _new_lock(), _new_lock(), _new_lock(), _new_lock()
    _tick.acquire()
    _mainev.acquire()
    S.ticking = S.running = S.leave = False


def _rebind():
    """The streams of a forked kernel write to new pipes already; only what
    they wait for has to be told."""
    for s, other in ((S.out, S.own2), (S.err, S.own1)):
        raw = _getattr(s.buffer, "raw", s.buffer)
        raw.other = other
    return S.out, S.err


_COMMON = (
    "__future__ _ast abc argparse ast asyncio base64 bisect calendar codecs collections collections.abc concurrent.futures "
    "contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib enum errno fnmatch fractions functools gc "
    "getpass glob gzip hashlib heapq html http.client importlib.metadata inspect io itertools json keyword linecache locale "
    "logging math multiprocessing operator os.path pathlib pickle platform pprint queue random re reprlib resource secrets "
    "select selectors shlex shutil signal socket ssl stat statistics string struct subprocess tempfile textwrap threading "
    "time timeit tokenize traceback types typing unicodedata urllib.parse urllib.request uuid warnings weakref zipfile"
).split()


def _sweep(parent, groups):
    """End what kernels left in other process groups, if the host has died."""
    for _ in range(1000):  # it closes what it has open first
        if os.getppid() != parent:
            break
        _sleep(0.001)
    else:
        return
    for g in groups:
        try:
            fd = os.open(g + "/cgroup.kill", os.O_WRONLY)
            os.write(fd, b"1")
            os.close(fd)
        except OSError:
            pass


def _zygote(sock, life, preload):
    """Fork kernels on request until the host is gone."""
    import gc
    parent = os.getppid()
    life = _tie(life)
    failed = {}
    for name in _COMMON:
        try:
            __import__(name)
        except Exception:
            pass
    threads = {n: os.environ.get(n) for n in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    if preload:
        for n in threads:
            os.environ[n] = "1"  # threads would not survive a fork
    for name in preload:
        try:
            __import__(name)
        except BaseException as e:
            failed[name] = "%s: %s" % (_type(e).__name__, e)
    for n, v in threads.items():
        if v is None:
            os.environ.pop(n, None)
        else:
            os.environ[n] = v
    _load_json()
    clone = _Clone()
    if _len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a preloaded module started a thread")
    s = _socket.socket(fileno=sock)
    os.close(life)  # from here on we see ourselves when the host is gone
    guarded = set()
    gc.collect()
    gc.freeze()
    s.send(_dumps({"t": "zygote", "failed": failed, "version": sys.version.split()[0], "executable": sys.executable}, 2))
    while True:
        data, extra, _, _ = s.recvmsg(1 << 20, _FDSPACE, 0x40000000)
        if not data:
            _sweep(parent, guarded)
            _exit(0)
        fds = []
        for level, kind, raw in extra:
            fds.extend(memoryview(raw[: _len(raw) & ~3]).cast("i"))
        req = _loads(data)
        if "guard" in req:
            if _len(guarded) > 4096:
                guarded = {g for g in guarded if os.path.exists(g)}
            guarded.add(req["guard"])
            continue
        S.forking = True
        try:
            pid = clone(fds[5])
        except BaseException as e:
            s.send(_dumps({"t": "failed", "n": req["n"], "error": _str(e)}, 2))
            pid = -1
        if pid == 0:
            s.close()
            _born(fds)
            return
        if pid > 0:
            s.send(_dumps({"t": "born", "n": req["n"], "pid": pid}, 2))
        for fd in fds:
            os.close(fd)


def main():
    """Become what argv says."""
    role = sys.argv[1]
    preload = sys.argv[2].split(",") if role == "zygote" and _len(sys.argv) > 2 and sys.argv[2] else []
    module = _prepare()
    if role == "zygote":
        _zygote(3, 4, preload)
    else:
        _attach(3, 4, 5)
    _streams()
    req = _next()
    _begin(req)
    _initialise(req.get("code"))
    _ready()
    if role != "zygote":
        for name in ("linecache", "traceback", "ctypes"):  # while the host is busy with our answer
            try:
                __import__(name)
            except ImportError:
                pass
    _serve()
