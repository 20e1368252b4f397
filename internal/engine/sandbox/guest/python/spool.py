"""What a script in a sandbox may ask of the program that runs it.

    spool.fs.read(path), write, stat, readdir, mkdir
    spool.http.request(url, method="GET", headers=None, body=None)
    spool.dns.lookup(hostname, family=None)
    spool.subprocess.run(command, args=(), …)
    spool.ask(kind, **data)

Whatever was not offered raises PermissionError; what is not answered in time
raises TimeoutError. Errors of the host program are OSError with its errno, or
HostError. The standard library's urllib.request.urlopen,
socket.getaddrinfo, socket.gethostbyname and subprocess.run come here too.
"""

import base64 as _base64
import errno as _errno
import json as _json
import types as _types

__all__ = ["HostError", "ask", "dns", "fs", "http", "subprocess"]


_MAX_ASK = 8 << 20  # guest.MaxAskBytes, which the host enforces


class HostError(RuntimeError):
    """The host program could not do what it was asked; code says why."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class HostTimeout(TimeoutError, HostError):
    """The host program did not answer in time."""

    def __init__(self, message):
        OSError.__init__(self, message)
        self.code = "ERR_TIMED_OUT"

    def __str__(self):
        return self.args[0]


class HostDenied(PermissionError, HostError):
    """It was not offered."""

    def __init__(self, message):
        OSError.__init__(self, _errno.EACCES, message)
        self.code = "ERR_DENIED"


def ask(kind, /, **data):
    """Puts a question to the host program and returns its answer."""
    import _spool

    payload = _json.dumps(data)
    if len(payload) > _MAX_ASK:
        raise OSError(_errno.E2BIG, "the ask is too large")
    reply = _json.loads(_spool.call(kind, payload))
    error = reply.get("error")
    if error is None:
        return reply.get("value")
    code, message = error.get("code") or "ERR_FAILED", error.get("message") or "the host failed"
    if code == "ERR_TIMED_OUT":
        raise HostTimeout(message)
    if code == "ERR_DENIED":
        raise HostDenied(message)
    number = getattr(_errno, code, None)
    if isinstance(number, int):
        raise OSError(number, message, data["path"]) if "path" in data else OSError(number, message)
    raise HostError(code, message)


def _bytes(data):
    if isinstance(data, str):
        data = data.encode()
    return _base64.b64encode(bytes(data)).decode()


class Stat(_types.SimpleNamespace):
    """mode, size, is_directory, is_symbolic_link."""


def _read(path):
    return _base64.b64decode(ask("fs.read", path=path)["content_base64"])


def _write(path, content):
    ask("fs.write", path=path, content_base64=_bytes(content))


def _stat(path):
    return Stat(**ask("fs.stat", path=path)["stat"])


def _readdir(path):
    return list(ask("fs.readdir", path=path)["entries"])


def _mkdir(path, recursive=False):
    ask("fs.mkdir", path=path, recursive=bool(recursive))


fs = _types.SimpleNamespace(read=_read, write=_write, stat=_stat, readdir=_readdir, mkdir=_mkdir)


class Response(_types.SimpleNamespace):
    """status, reason, url, headers (name to list of values), body."""


def _request(url, method="GET", headers=None, body=None):
    data = {"url": url, "method": method, "headers": dict(headers or {})}
    if body is not None:
        data["body_base64"] = _bytes(body)
    r = ask("http.request", **data)
    return Response(
        status=r["status"], reason=r.get("reason", ""), url=r.get("url", url),
        headers=r.get("headers") or {}, body=_base64.b64decode(r.get("body_base64") or ""),
    )


http = _types.SimpleNamespace(request=_request)


def _lookup(hostname, family=None):
    data = {"hostname": hostname}
    if family is not None:
        data["family"] = family
    return list(ask("dns.lookup", **data)["addresses"])


dns = _types.SimpleNamespace(lookup=_lookup)


class Completed(_types.SimpleNamespace):
    """exit_code, stdout, stderr, max_buffer_exceeded."""


def _run(command, args=(), cwd=None, env=None, shell=False, max_buffer=None):
    data = {"command": command, "args": list(args), "shell": bool(shell)}
    for name, value in (("cwd", cwd), ("env", env), ("max_buffer", max_buffer)):
        if value is not None:
            data[name] = value
    r = ask("subprocess.run", **data)
    return Completed(
        exit_code=r["exit_code"], stdout=r.get("stdout", ""), stderr=r.get("stderr", ""),
        max_buffer_exceeded=bool(r.get("max_buffer_exceeded")),
    )


subprocess = _types.SimpleNamespace(run=_run)


def _install():
    """Leads the standard library's own functions here."""
    for install in (_install_input, _install_urllib, _install_socket, _install_subprocess):
        try:
            install()
        except ImportError:
            pass  # this interpreter lacks the module, so it cannot be called


def _install_input():
    """Has input() and getpass() ask the host program, if that answers them:
    else they read standard input."""
    import builtins

    read = builtins.input

    def line(prompt, secret):
        try:
            return ask("input", prompt=prompt, secret=secret)
        except HostError as e:
            if e.code == "EOF":
                raise EOFError("EOF when reading a line") from None
            raise

    def input(prompt="", /):
        try:
            return line(str(prompt), False)
        except HostDenied:
            pass
        return read(prompt)

    builtins.input = input
    import getpass as module

    plain = module.getpass

    def getpass(prompt="Password: ", stream=None, **kwargs):
        try:
            return line(str(prompt), True)
        except HostDenied:
            pass
        return plain(prompt, stream, **kwargs)

    module.getpass = getpass


def _install_urllib():
    import email.message
    import io
    import urllib.error
    import urllib.request

    class URLResponse(io.BytesIO):
        def __init__(self, r):
            super().__init__(r.body)
            self.status = self.code = r.status
            self.reason = self.msg = r.reason
            self.url = r.url
            self.headers = email.message.Message()
            for name, values in r.headers.items():
                for value in [values] if isinstance(values, str) else values:
                    self.headers[name] = value

        def getcode(self):
            return self.status

        def geturl(self):
            return self.url

        def info(self):
            return self.headers

        def getheader(self, name, default=None):
            return self.headers.get(name, default)

        def getheaders(self):
            return list(self.headers.items())

    local = urllib.request.urlopen

    def urlopen(url, data=None, timeout=None, *, context=None):
        request = url if isinstance(url, urllib.request.Request) else urllib.request.Request(url, data)
        if request.type not in ("http", "https"):
            return local(request)
        body = data if data is not None else request.data
        try:
            r = _request(request.full_url, request.get_method(), dict(request.header_items()), body)
        except (OSError, HostError) as e:
            raise urllib.error.URLError(e) from e
        response = URLResponse(r)
        if not 200 <= r.status < 300:
            raise urllib.error.HTTPError(r.url, r.status, r.reason, response.headers, response)
        return response

    urllib.request.urlopen = urlopen


def _install_socket():
    import socket

    inet, inet6 = socket.AF_INET, getattr(socket, "AF_INET6", 10)

    def addresses(host, family):
        try:
            return _lookup(host, {inet: 4, inet6: 6}.get(family))
        except HostTimeout:
            raise
        except (OSError, HostError) as e:
            raise socket.gaierror(getattr(socket, "EAI_FAIL", -4), str(e)) from e

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        found = []
        for address in addresses(host, family):
            six = ":" in address
            target = (address, int(port or 0), 0, 0) if six else (address, int(port or 0))
            found.append((inet6 if six else inet, type or socket.SOCK_STREAM, proto, "", target))
        return found

    def gethostbyname(host):
        return addresses(host, inet)[0]

    socket.getaddrinfo, socket.gethostbyname = getaddrinfo, gethostbyname


def _install_subprocess():
    import subprocess

    def run(args, *, input=None, capture_output=False, check=False, shell=False, cwd=None, env=None,
            text=None, encoding=None, errors=None, universal_newlines=None, stdout=None, stderr=None,
            stdin=None, timeout=None):
        if input is not None:
            raise NotImplementedError("a process outside the sandbox takes no input")
        words = [args] if isinstance(args, (str, bytes)) else list(args)
        words = [w.decode() if isinstance(w, bytes) else str(w) for w in words]
        r = _run(words[0], words[1:], cwd=str(cwd) if cwd is not None else None,
                 env=dict(env) if env is not None else None, shell=shell)
        out, err = r.stdout, r.stderr
        if not (text or encoding or errors or universal_newlines):
            out, err = out.encode(), err.encode()
        if not capture_output:
            import sys

            for value, target, stream in ((out, stdout, sys.stdout), (err, stderr, sys.stderr)):
                if target is None:
                    stream.write(value if isinstance(value, str) else value.decode())
            out = out if stdout == subprocess.PIPE else None
            err = err if stderr == subprocess.PIPE else None
        done = subprocess.CompletedProcess(args, r.exit_code, out, err)
        if check:
            done.check_returncode()
        return done

    def call(*args, **kwargs):
        return run(*args, **kwargs).returncode

    def check_call(*args, **kwargs):
        return run(*args, check=True, **kwargs).returncode

    def check_output(*args, **kwargs):
        return run(*args, stdout=subprocess.PIPE, check=True, **kwargs).stdout

    subprocess.run, subprocess.call = run, call
    subprocess.check_call, subprocess.check_output = check_call, check_output
