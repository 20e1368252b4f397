"""Answers questions about a namespace. The standard library is imported only
when it is needed, and nothing of the namespace is called: only attributes and
items are looked up, as a person who types their names expects."""
import builtins
import re
import sys

MOST = 1000
_NAME = r"[^\W\d]\w*"
_ITEM = r"""\[\s*(?:-?\d+|'[^'\n]*'|"[^"\n]*")\s*\]"""
_PATH = re.compile(r"(%s(?:\.%s|%s)*)" % (_NAME, _NAME, _ITEM))
_STEP = re.compile(r"\.(%s)|\[\s*(-?\d+|'[^'\n]*'|\"[^\"\n]*\")\s*\]" % _NAME)
_MISSING = object()
_modules = []


def answer(q, ns, magics=((), ())):
    if q["op"] == "complete":
        return complete(q["code"], q["cursor"], ns, magics)
    if q["op"] == "check":
        return check(q["code"])
    return {"text": describe(q["code"], ns, q.get("source"), magics)}


def find(path, ns):
    """The object that a dotted name with constant indices names."""
    head = re.match(_NAME, path)
    if head is None:
        return _MISSING
    name = head.group()
    o = ns.get(name, _MISSING)
    if o is _MISSING:
        o = vars(builtins).get(name, _MISSING)
    pos = head.end()
    while o is not _MISSING and pos < len(path):
        step = _STEP.match(path, pos)
        if step is None:
            return _MISSING
        pos = step.end()
        try:
            if step.group(1):
                o = getattr(o, step.group(1), _MISSING)
            else:
                key = step.group(2)
                o = o[key[1:-1] if key[0] in "'\"" else int(key)]
        except Exception:
            return _MISSING
    return o


def names_of(o):
    try:
        return [n for n in dir(o) if type(n) is str]
    except Exception:
        return []


def matching(names, prefix):
    """Those that begin with the prefix; private names only if it asks for
    them."""
    found = {n for n in names if n.startswith(prefix)}
    if not prefix.startswith("_"):
        shown = {n for n in found if not n.startswith("_")}
        found = shown or found
    return sorted(found, key=lambda n: (n.startswith("_"), n.lower(), n))


# --- completion ----------------------------------------------------------

def complete(code, cursor, ns, magics):
    before = code[:cursor]
    begin = before.rfind("\n") + 1
    line = before[begin:]
    start, found = begin + len(line), []
    for f in (_magic, _shell, _import, _string, _attribute, _plain):
        r = f(line, before, ns, magics)
        if r is not None:
            start, found = begin + r[0], r[1]
            break
    return {"start": start, "matches": found[:MOST]}


def _magic(line, before, ns, magics):
    m = re.match(r"\s*(%%?)(\w*)$", line)
    if m:
        first = not before[: len(before) - len(line)].strip()
        names = ["%" + n for n in magics[0]] if m.group(1) == "%" else []
        if first:
            names += ["%%" + n for n in magics[1]]
        return m.start(1), sorted((n for n in names if n.startswith(m.group(1) + m.group(2))), key=lambda n: (n[:2] == "%%", n))
    m = re.match(r"\s*%%?(\w+)\s(?:.*\s)?(\S*)$", line)
    if m and m.group(1) in ("cd", "run", "ls", "writefile", "bash", "sh"):
        return m.start(2), files(m.group(2), m.group(1) == "cd")
    return None


def _shell(line, before, ns, magics):
    m = re.match(r"\s*(?:%s\s*=\s*)?!!?(.*)$" % _NAME, line)
    if not m:
        return None
    rest = m.group(1)
    word = re.search(r"[^\s;|&<>]*$", rest)
    start, text = m.start(1) + word.start(), word.group()
    command = re.search(r"(?:^|[;|&])\s*$", rest[: word.start()])
    if command and "/" not in text:
        return start, commands(text)
    return start, files(text)


def commands(prefix):
    import os
    found = set()
    for d in os.environ.get("PATH", "").split(os.pathsep):
        try:
            with os.scandir(d or ".") as entries:
                for e in entries:
                    if e.name.startswith(prefix) and e.is_file() and os.access(e.path, os.X_OK):
                        found.add(e.name)
        except OSError:
            pass
    return sorted(found)


def files(prefix, only_dirs=False):
    import os
    head, tail = os.path.split(prefix)
    found = []
    try:
        with os.scandir(os.path.expanduser(head) or ".") as entries:
            for e in entries:
                if not e.name.startswith(tail) or e.name.startswith(".") and not tail.startswith("."):
                    continue
                is_dir = e.is_dir()
                if is_dir or not only_dirs:
                    found.append(prefix[: len(prefix) - len(tail)] + e.name + ("/" if is_dir else ""))
    except OSError:
        pass
    return sorted(found)


def _import(line, before, ns, magics):
    m = re.match(r"\s*from\s+([\w.]+)\s+import\s+\(?(?:[\w\s,]*,\s*)?(\w*)$", line)
    if m:
        return m.start(2), _members(m.group(1), m.group(2))
    m = re.match(r"\s*(?:import|from)\s+(?:[\w.\s]*,\s*)?([\w.]*)$", line)
    if not m:
        return None
    parent, dot, prefix = m.group(1).rpartition(".")
    if dot:
        return m.start(1), [parent + "." + n for n in matching(_submodules(parent), prefix)]
    if not _modules:
        import pkgutil
        _modules.extend(set(x.name for x in pkgutil.iter_modules()) | set(sys.builtin_module_names))
    known = [n for n in list(sys.modules) if "." not in n]
    return m.start(1), matching(_modules + known, prefix)


def _members(module, prefix):
    names = _submodules(module)
    if module in sys.modules:
        names += names_of(sys.modules[module])
    return matching(names, prefix)


def _submodules(module):
    path = getattr(sys.modules.get(module), "__path__", None)
    if path is None:
        import importlib.util
        try:
            spec = importlib.util.find_spec(module) if "." not in module else None
            path = spec.submodule_search_locations if spec else None
        except Exception:
            path = None
    if path is None:
        return []
    import pkgutil
    return [x.name for x in pkgutil.iter_modules(list(path))]


def opened(text):
    """Where the string begins that the text ends in, and the open brackets; a
    string of three quotes is not completed."""
    token = re.compile(r"#[^\n]*|'''|\"\"\"|'|\"|[()\[\]{}]|\\.", re.S)
    pos, brackets = 0, []
    while True:
        m = token.search(text, pos)
        if m is None:
            return None, brackets
        pos, s = m.end(), m.group()
        if s[0] in "'\"":
            end = re.compile(r"\\.|" + s + (r"|\n" if len(s) == 1 else ""), re.S)
            while True:
                e = end.search(text, pos)
                if e is None:
                    return (m.start(), s), brackets
                pos = e.end()
                if e.group() in (s, "\n"):
                    break
        elif s in "([{":
            brackets.append(m.start())
        elif s in ")]}" and brackets:
            brackets.pop()


def _string(line, before, ns, magics):
    inside, _ = opened(before)
    if inside is None:
        return None
    at, quote = inside
    begin = len(before) - len(line)
    if len(quote) == 3 or at < begin:
        return len(line), []
    text = before[at + 1 :]
    key = re.search(_PATH.pattern + r"\[\s*$", before[begin:at])
    if key:
        o = find(key.group(1), ns)
        return at - begin + 1, matching(_keys(o), text)
    return at - begin + 1, files(text)


def _keys(o):
    if isinstance(o, dict):
        return [k for k in list(o)[:MOST] if type(k) is str]
    columns = getattr(o, "columns", None)  # of a table
    if columns is not None and not callable(columns):
        try:
            return [k for k in list(columns)[:MOST] if type(k) is str]
        except Exception:
            pass
    return []


def _attribute(line, before, ns, magics):
    m = re.search(_PATH.pattern + r"\.(\w*)$", line)
    if m is None:
        m = re.search(r"\.(\w*)$", line)  # of what is not a name
        return (m.start(1), []) if m and not re.search(r"\d\.$", line) else None
    if m.start() > 0 and line[m.start() - 1] in ".)]}'\"":
        return m.start(2), []  # the name is an attribute itself
    o = find(m.group(1), ns)
    if o is _MISSING:
        return m.start(2), []
    return m.start(2), matching(names_of(o), m.group(2))


def _plain(line, before, ns, magics):
    m = re.search(r"\w*$", line)
    prefix = m.group()
    if prefix[:1].isdigit():
        return m.start(), []
    import keyword
    names = [n for n in list(ns) if type(n) is str] + names_of(builtins) + keyword.kwlist
    found = matching(names, prefix) if prefix else []
    return m.start(), arguments(before, prefix, ns) + found


def arguments(before, prefix, ns):
    """The keyword arguments of the call that the cursor is in."""
    _, brackets = opened(before)
    if not brackets or before[brackets[-1]] != "(":
        return []
    m = re.search(_PATH.pattern + r"$", before[: brackets[-1]])
    o = find(m.group(1), ns) if m else _MISSING
    if o is _MISSING or not callable(o):
        return []
    import inspect
    try:
        ps = inspect.signature(o).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name + "=" for p in ps if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name.startswith(prefix)]


# --- description ---------------------------------------------------------

def describe(code, ns, source, magics):
    name = code.strip()
    if name.startswith("%"):
        known = magics[1 if name.startswith("%%") else 0]
        return "a magic of this kernel" if name.lstrip("%") in known else ""
    o = find(name, ns)
    if o is _MISSING:
        return ""
    import inspect
    out = []

    def add(title, text):
        if text:
            out.append("%s:%s%s" % (title, "\n" if "\n" in text else " ", text))
    if callable(o):
        try:
            add("Signature", name.rpartition(".")[2] + str(inspect.signature(o)))
        except Exception:
            pass
    add("Type", type(o).__name__)
    if not callable(o) and not inspect.ismodule(o):
        try:
            text = repr(o)
        except Exception as e:
            text = "<repr raised %s>" % type(e).__name__
        add("String form", text if len(text) <= 2000 else text[:2000] + "…")
        try:
            add("Length", str(len(o)))
        except Exception:
            pass
    try:
        add("File", inspect.getsourcefile(o) or "")
    except Exception:
        pass
    shown = False
    if source:
        try:
            import textwrap
            out.append("Source:\n" + textwrap.dedent(inspect.getsource(o)).rstrip("\n"))
            shown = True
        except Exception:
            pass
    if not shown:
        try:
            add("Docstring", (inspect.getdoc(o) or "<no docstring>").strip())
        except Exception:
            pass
    return "\n".join(out)


# --- whole cells ---------------------------------------------------------

def check(code):
    """Whether the code is a whole cell, as a person who ended a line means it: a
    block goes on until a blank line."""
    import ast
    import codeop
    import warnings
    lines = code.split("\n")
    last = lines[-1]
    if code.lstrip().startswith("%%"):
        return {"status": "incomplete" if last.strip() else "complete"}
    plain = "\n".join(re.sub(r"^(\s*)(?:[%!].*|(" + _NAME + r")\s*=\s*[%!].*)$", r"\1pass", line) for line in lines)
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = compiler(plain, "<cell>", "exec")
    except (SyntaxError, ValueError, OverflowError):
        return {"status": "invalid"}
    if whole is not None and not (last.strip() and last[0] in " \t"):
        return {"status": "complete"}
    indent = last[: len(last) - len(last.lstrip())]
    return {"status": "incomplete", "indent": indent + ("    " if last.rstrip().endswith(":") else "")}
