"""library.py SOURCE OUT: packs the standard library into a zip of bytecode.

The archive is not compressed, so that the interpreter reads modules without
zlib, and byte for byte the same each time.
"""

import importlib._bootstrap_external as external
import os
import sys
import zipfile

# What cannot work without processes, windows, shared libraries or an index of
# packages, and what nobody but CPython's own developers needs.
LEFT_OUT = {
    "__phello__", "ctypes", "curses", "dbm", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages",
    "test", "tests", "tkinter", "turtledemo", "venv", "__pycache__",
    "antigravity.py", "this.py", "turtle.py", "webbrowser.py", "msilib", "_ios_support.py", "_android_support.py",
    "_osx_support.py", "_aix_support.py",
}

SYSCONFIG = "_sysconfigdata__wasi_wasm32-wasi.py"
SYSCONFIG_SOURCE = "build_time_vars = {'SOABI': 'cpython-313-wasm32-wasi', 'EXT_SUFFIX': '.cpython-313-wasm32-wasi.so'}\n"


def sources(root):
    for directory, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in LEFT_OUT)
        for file in sorted(files):
            if file.endswith(".py") and file not in LEFT_OUT:
                path = os.path.join(directory, file)
                yield os.path.relpath(path, root), open(path, "rb").read()


def main(root, out):
    members = dict(sources(root))
    members[SYSCONFIG] = SYSCONFIG_SOURCE.encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, source in sorted(members.items()):
            code = compile(source, "/usr/lib/python313.zip/" + name, "exec", dont_inherit=True, optimize=0)
            # Unchecked: there is no source beside it that could be newer.
            data = external._code_to_hash_pyc(code, b"\0" * 8, False)
            info = zipfile.ZipInfo(name + "c", (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o444 << 16
            archive.writestr(info, bytes(data))


main(*sys.argv[1:])
