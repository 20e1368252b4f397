//go:build amd64 || arm64

package pyodide_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/pyodidetest"
)

// The real Pyodide has no network either, while it is loaded and afterwards.
func TestRealBlocksNetworkDuringInit(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	dist, real := t.TempDir(), pyodidetest.Dist(t)
	for _, name := range []string{"pyodide-lock.json", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "package.json"} {
		b, err := os.ReadFile(filepath.Join(real, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dist, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(real, "pyodide.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf(`
import net from 'node:net';
import { loadPyodide as load } from './real.mjs';
export async function loadPyodide(options) {
  const tried = await new Promise((resolve) => {
    const s = net.connect(%d, '127.0.0.1', () => resolve('reached'));
    s.on('error', (e) => resolve(e.code));
  });
  let fetched = 'reached';
  try { await fetch('http://127.0.0.1:%d'); } catch (e) { fetched = e.message; }
  options.stdout('init: ' + tried + ', ' + fetched);
  return load(options);
}`, port, port)
	for name, content := range map[string][]byte{"real.mjs": b, "pyodide.mjs": []byte(wrapper)} {
		if err := os.WriteFile(filepath.Join(dist, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := newLabOf(t, dist)
	e := l.do(l.start(nil), fmt.Sprintf(`
import socket, js, asyncio
from pyodide.http import pyfetch
for f in (
    lambda: socket.create_connection(("127.0.0.1", %d), 1).sendall(b"x"),
    lambda: asyncio.run(pyfetch("http://127.0.0.1:%d")),
    lambda: js.XMLHttpRequest.new(),
    lambda: js.WebSocket.new("ws://127.0.0.1:%d"),
):
    try:
        print("reached", f())
    except BaseException as e:
        print(type(e).__name__)
`, port, port, port))
	if !strings.HasPrefix(e.stdout, "init: EPERM, network access is not available") || strings.Contains(e.stdout, "reached") || *e.done.ExitCode != 0 {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
	if err := listener.(*net.TCPListener).SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if c, err := listener.Accept(); err == nil {
		c.Close()
		t.Error("somebody got through to the machine's network")
	}
}
