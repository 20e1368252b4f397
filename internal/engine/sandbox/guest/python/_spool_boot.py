"""Executes scripts for a sandbox, the same way in every interpreter.

prepare() runs once in the interpreter that all others are copies of. renew()
makes a copy its own. run() executes one script and reports how it ended; what
a script prints goes through the descriptors 1 and 2, unbuffered and as it is.
"""

import ast
import builtins
import io
import json
import linecache
import os
import sys
import time
import traceback
import types

_MAX_VALUE = 1 << 20  # characters of a repr
_MAX_TEXT = 1 << 16  # of an exception's message
_fresh = False
_first = None  # what we put first in sys.path
_count = 0
_inspector = None  # the namespace of the code that answers questions


def prepare():
    """Gets everything ready that does not depend on who will use it."""
    main = sys.modules.get("__main__")
    if main is None:
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
    main.__dict__.setdefault("__builtins__", builtins)
    sys.dont_write_bytecode = True
    _streams()
    _event_loop()
    builtins.exit, builtins.quit = _Exit("exit"), _Exit("quit")
    import spool

    spool._install()


class _Exit:
    """What a person types to leave."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "Use %s() to exit" % self.name

    def __call__(self, code=None):
        raise SystemExit(code)


def renew(config):
    """Makes a copy of an interpreter one of its own kind."""
    global _fresh
    config = json.loads(config)
    _fresh = bool(config.get("fresh"))
    _streams()
    os.environ.clear()
    os.environ.update(config.get("env") or {})
    os.chdir(config.get("cwd") or "/")
    seed = bytes.fromhex(config["seed"])
    random = sys.modules.get("random")
    if random is not None:
        random.seed(seed + b"random")
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(list(seed[:32]))
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile._name_sequence = None
        tempfile.tempdir = None
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        uuid._node = None
        uuid._last_timestamp = None
    _time_zone()


def _time_zone():
    if hasattr(time, "tzset"):
        try:
            time.tzset()
        except OSError:
            pass


def _streams():
    """Gives the standard streams no buffer: what was printed is out, also if
    the script is stopped in the next moment."""

    def stream(fd, mode, errors):
        raw = io.FileIO(fd, mode, closefd=False)
        raw.name = {0: "<stdin>", 1: "<stdout>", 2: "<stderr>"}[fd]
        if mode == "r":
            return io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8", errors=errors)
        return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="\n", write_through=True)

    sys.stdin = sys.__stdin__ = stream(0, "r", "surrogateescape")
    sys.stdout = sys.__stdout__ = stream(1, "w", "surrogateescape")
    sys.stderr = sys.__stderr__ = stream(2, "w", "backslashreplace")


def _event_loop():
    """Gives asyncio a loop that needs no sockets: with one thread and no
    network, only time can make something happen."""
    try:
        import asyncio
        from asyncio import base_events, events
    except ImportError:
        return

    class Selector:
        def select(self, timeout):
            if timeout is None:
                raise RuntimeError("nothing is left that could wake the event loop")
            if timeout > 0:
                time.sleep(timeout)
            return []

        def close(self):
            pass

    class Loop(base_events.BaseEventLoop):
        def __init__(self):
            super().__init__()
            self._selector = Selector()

        def _process_events(self, event_list):
            pass

        def _write_to_self(self):
            pass

        def run_in_executor(self, executor, func, *args):
            future = self.create_future()
            try:
                future.set_result(func(*args))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as e:
                future.set_exception(e)
            return future

        async def shutdown_default_executor(self, timeout=None):
            pass

    base = getattr(events, "BaseDefaultEventLoopPolicy", None) or getattr(events, "_BaseDefaultEventLoopPolicy")

    class Policy(base):
        _loop_factory = Loop

    set_policy = getattr(events, "_set_event_loop_policy", None) or asyncio.set_event_loop_policy
    set_policy(Policy())
    asyncio.new_event_loop = events.new_event_loop = Loop


def run(script):
    """Executes a script and returns how it ended, both as JSON."""
    try:
        return json.dumps(_run(json.loads(script)))
    except BaseException as e:  # the streams, or memory, are gone
        return json.dumps({
            "exit_code": 130 if isinstance(e, KeyboardInterrupt) else 1,
            "out_of_memory": isinstance(e, MemoryError),
            "exception": {"name": type(e).__name__, "message": _text(e)[:_MAX_TEXT], "traceback": ""},
        })


def _run(script):
    global _count
    if script.get("inspect") is not None:
        return _inspect(script)
    _count += 1
    code, file, cell = script["code"], script.get("file") or "", bool(script.get("cell"))
    module = script.get("module")
    name = file or ("<cell %d>" % _count if cell else "<string>")
    space = sys.modules["__main__"].__dict__
    space["__name__"] = "__main__"
    if file and not module:
        space["__file__"] = file
    sys.argv = [file or script.get("name") or "", *(script.get("args") or [])]
    _begin_path(file, module)
    lines = code.splitlines(True)
    linecache.cache[name] = (len(code), None, lines, name)
    result = {"exit_code": 0}
    last = _fresh or bool(script.get("last"))
    try:
        if script.get("keep"):
            _keep(space, script["keep"], code, None)
        value = _run_module(module, file) if module else _execute(code, name, space, cell)
        if value is not None:
            builtins._ = value
            if script.get("keep"):
                _keep(space, script["keep"], code, value)
            result["value"] = repr(value)[:_MAX_VALUE]
    except SystemExit as e:
        result["exit_code"] = _exit_code(e.code)
        result["exception"] = {"name": "SystemExit", "message": "" if e.code is None else _text(e.code)[:_MAX_TEXT], "traceback": ""}
    except BaseException as e:
        result["exit_code"] = 130 if isinstance(e, KeyboardInterrupt) else 1
        if isinstance(e, MemoryError):
            result["out_of_memory"] = True
        text = _traceback(e)
        result["exception"] = {"name": type(e).__name__, "message": _text(e)[:_MAX_TEXT], "traceback": text}
        if not (last and _hook(e)):
            _say(text)
        e.__traceback__ = None
    if last:
        _end_program(space)
    _flush()
    return result


def _keep(space, n, code, value):
    """Lets later cells find a cell and its result as In and Out, as at the
    prompt of IPython. value is None if there is no result."""
    if type(space.get("In")) is not list:
        space["In"] = [""]
    if type(space.get("Out")) is not dict:
        space["Out"] = {}
    cells = space["In"]
    cells.extend([""] * (n - len(cells)))
    if len(cells) == n:
        cells.append(code)
    if value is not None and value is not space["Out"]:
        space["Out"][n] = space["_%d" % n] = value


def _inspect(script):
    """Answers a question about the namespace of the scripts."""
    global _inspector
    if _inspector is None:
        space = {"__name__": "_spool_inspect"}
        exec(compile(script["code"], "<inspect>", "exec", dont_inherit=True), space)
        _inspector = space
    answer = _inspector["answer"](script["inspect"], sys.modules["__main__"].__dict__)
    if "text" in answer:
        answer["text"] = answer["text"][:_MAX_TEXT]
    return {"exit_code": 0, "value": json.dumps(answer)}


def _run_module(name, archive):
    """Runs a module as __main__: that of a directory or an archive, which is
    first in sys.path, or any other."""
    import runpy

    runpy._run_module_as_main(name, not archive)


def _begin_path(file, module):
    """Lets sys.path begin as Python has it: with the directory of the script,
    with the directory or archive that runs, or with the working directory.
    What scripts changed there stays."""
    global _first
    first = ""
    if module:
        first = file or os.getcwd()
    elif file:
        first = os.path.dirname(os.path.realpath(file))
    path = sys.path
    if first == _first or type(path) is not list:
        return
    if _first is not None and path[:1] == [_first]:
        del path[0]
    if path[:1] != [first]:
        path.insert(0, first)
    _first = first


def _execute(code, name, space, cell):
    if not cell:
        exec(compile(code, name, "exec", dont_inherit=True), space)
        return None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    _step(compile(tree, name, "exec", flags, dont_inherit=True), space)
    if last is None:
        return None
    return _step(compile(last, name, "eval", flags, dont_inherit=True), space)


def _step(code, space):
    value = eval(code, space)
    if code.co_flags & 0x80:  # CO_COROUTINE: it awaits
        import asyncio

        return asyncio.run(value)
    return value


def _end_program(space):
    """Ends a program as Python does: with the functions that it registered with
    atexit, and with __del__ of what it has."""
    import atexit

    try:
        atexit._run_exitfuncs()
        for private in (True, False):
            for k in list(space):
                if k[:2] != "__" and (k[:1] == "_") == private:
                    space[k] = None
    except BaseException as e:
        _say(_traceback(e))


def _hook(e):
    """Lets the program's own sys.excepthook report an exception. It returns
    whether there is one that could."""
    hook = getattr(sys, "excepthook", None)
    if hook is None or hook is sys.__excepthook__:
        return False
    try:
        hook(type(e), e, e.__traceback__)
        return True
    except BaseException:
        return False


def _exit_code(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    _say(_text(code) + "\n")
    return 1


def _traceback(e):
    try:
        seen = set()
        _strip(e, seen)
        return "".join(traceback.format_exception(e))
    except BaseException:
        return "%s: %s\n" % (type(e).__name__, _text(e))


def _strip(e, seen):
    """Takes the frames of this module out of a traceback, and out of those
    that it was raised from."""
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        tb = e.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename == _HERE_CODE:
            tb = tb.tb_next
        e.__traceback__ = tb
        while tb is not None and tb.tb_next is not None:  # our input() is Python's
            f = tb.tb_next.tb_frame.f_code
            if f.co_filename == "<spool>" and f.co_name == "input":
                tb.tb_next = None
            tb = tb.tb_next
        if e.__cause__ is not None:
            _strip(e.__cause__, seen)
        e = e.__context__


_HERE_CODE = _strip.__code__.co_filename


def _text(value):
    try:
        return str(value)
    except BaseException:
        return "<unprintable %s>" % type(value).__name__


def _say(text):
    """Writes to standard error, past what the script did to it."""
    _flush()
    try:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(2, data):]
    except OSError:
        pass


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass
