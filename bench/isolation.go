package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/npmtest"
)

// The subjects beside isolated runs.
const (
	subjectBubblewrap = "bubblewrap" // with the flags of codex
	subjectSRT        = "srt"        // the sandbox runtime of Anthropic
)

// srt is the pinned sandbox runtime.
var srt = npmtest.Program{Name: "srt", Packages: []string{"@anthropic-ai/sandbox-runtime@0.0.83"}, File: "node_modules/.bin/srt"}

// isolationBench measures isolated runs in a host of its own.
type isolationBench struct {
	*bench
	host *host.Host
	room string // its directory
}

// measureIsolation starts isolated runs beside plain ones and beside other sandboxes,
// and makes workspaces and connections.
func measureIsolation(ctx context.Context, b *bench) (err error) {
	i := &isolationBench{bench: b, room: filepath.Join(b.dir, "isolation")}
	if err := os.MkdirAll(i.room, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(i.room)) }()
	if i.host, err = openHost(filepath.Join(i.room, "state")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.host.Close()) }()
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"starts in a sandbox", i.session}, {"new sandboxes", i.cold}, {"workspaces", i.workspaces},
		{"the proxy", i.proxy}, {"kills", i.kills}, {"escapes", i.escapes},
	} {
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// run runs a program and returns the time until it is closed.
func (i *isolationBench) run(ctx context.Context, spec spool.Spec) (time.Duration, *spool.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	r, err := spool.Start(ctx, i.host, spec)
	if err != nil {
		return 0, nil, err
	}
	o, err := r.Wait(ctx)
	if err == nil && o.Code != 0 {
		err = fmt.Errorf("%v: %v", spec.Argv, o)
	}
	return time.Since(began), r, err
}

// session starts programs in a sandbox that is there, and plain ones, in turns.
func (i *isolationBench) session(ctx context.Context) error {
	plain := spool.Spec{Argv: []string{shortest}, Cwd: i.room}
	isolated := plain
	isolated.Isolation = &spool.Isolation{Profile: string(isolate.Offline)}
	const warmup = 3
	var times [2][]time.Duration
	for n := range warmup + i.pick(200, 50) {
		for k, spec := range []spool.Spec{plain, isolated} {
			took, _, err := i.run(ctx, spec)
			if err != nil {
				return err
			}
			if n >= warmup {
				times[k] = append(times[k], took)
				i.addTime(subjectSpool, []string{"isolation.plain", "isolation.session"}[k], took)
			}
		}
	}
	for k := range times {
		slices.Sort(times[k])
	}
	i.addTime(subjectSpool, "isolation.extra", times[1][len(times[1])/2]-times[0][len(times[0])/2])
	return nil
}

// rest is the time between two starts that make a sandbox: what the last one does in
// the background must not delay the next, of either subject.
const rest = 30 * time.Millisecond

// bubblewrap returns a command in the sandbox that codex makes with bubblewrap.
func bubblewrap(ctx context.Context, dir string, argv ...string) *exec.Cmd {
	args := []string{"--new-session", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", dir, dir,
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--proc", "/proc", "--cap-drop", "ALL", "--chdir", dir, "--"}
	return exec.CommandContext(ctx, "bwrap", append(args, argv...)...)
}

// cold makes a sandbox for every start, in turns with the others.
func (i *isolationBench) cold(ctx context.Context) error {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return fmt.Errorf("%w; install bubblewrap", err)
	}
	for range i.pick(20, 5) {
		dir, err := os.MkdirTemp(i.room, "workspace")
		if err != nil {
			return err
		}
		took, _, err := i.run(ctx, spool.Spec{Argv: []string{shortest}, Cwd: dir, Isolation: &spool.Isolation{Profile: string(isolate.Offline)}})
		if err != nil {
			return err
		}
		i.addTime(subjectSpool, "isolation.cold", took)
		time.Sleep(rest)
		began := time.Now()
		if err := bubblewrap(ctx, dir, shortest).Run(); err != nil {
			return fmt.Errorf("bubblewrap: %w", err)
		}
		i.addTime(subjectBubblewrap, "isolation.cold", time.Since(began))
		time.Sleep(rest)
	}
	path, err := srt.Cached()
	if err != nil {
		return err
	}
	for range i.pick(3, 1) {
		began := time.Now()
		if out, err := exec.CommandContext(ctx, path, shortest).CombinedOutput(); err != nil {
			return fmt.Errorf("srt: %w: %s", err, bytes.TrimSpace(out))
		}
		i.addTime(subjectSRT, "isolation.cold", time.Since(began))
	}
	return nil
}

// tree makes a directory with 10,000 files, once for all rounds: where as many were
// deleted, ext4 takes a long time to make a file for some minutes.
func (i *isolationBench) tree() (string, error) {
	base := filepath.Join(i.dir, "isolation-tree")
	if _, err := os.Stat(base); err == nil {
		return base, nil
	}
	for d := range 100 {
		dir := filepath.Join(base, strconv.Itoa(d))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		for f := range 100 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(f)), []byte("text\n"), 0o600); err != nil {
				return "", err
			}
		}
	}
	return base, nil
}

// workspaces makes overlays of a directory with 10,000 files, and lists changes.
func (i *isolationBench) workspaces(ctx context.Context) error {
	base, err := i.tree()
	if err != nil {
		return err
	}
	overlay := &spool.Workspace{Kind: "overlay"}
	for range i.pick(20, 5) {
		began := time.Now()
		r, err := spool.Start(ctx, i.host, spool.Spec{Argv: []string{shortest}, Cwd: base, Workspace: overlay})
		if err != nil {
			return err
		}
		i.addTime(subjectSpool, "isolation.overlay", time.Since(began))
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		if err := i.host.Discard(ctx, r.ID()); err != nil {
			return err
		}
		time.Sleep(rest)
	}
	const changes = 1000
	_, r, err := i.run(ctx, spool.Spec{Argv: []string{"/bin/sh", "-c", "for d in 0 1 2 3 4 5 6 7 8 9; do for f in $d/*; do echo more >> $f; done; done"}, Cwd: base, Workspace: overlay})
	if err != nil {
		return err
	}
	for range i.pick(20, 5) {
		began := time.Now()
		list, err := i.host.Changes(ctx, r.ID(), spool.ChangeQuery{})
		if err != nil || len(list.Changes) != changes {
			return fmt.Errorf("%d changes, want %d: %w", len(list.Changes), changes, err)
		}
		i.add(subjectSpool, "isolation.diff", time.Since(began).Seconds()/(changes/100))
	}
	return i.host.Discard(ctx, r.ID())
}

// proxy has a run read from a server on this machine through its proxy.
func (i *isolationBench) proxy(ctx context.Context) (err error) {
	const size = 1 << 30
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = io.CopyN(w, zeroReader{}, size)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() {
		err = errors.Join(err, srv.Close())
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}()
	url := "http://" + ln.Addr().String()
	for metric, args := range map[string][]string{
		"isolation.proxy.rate":    {"-w", "%{speed_download}\n", url + "/large"},
		"isolation.proxy.request": {"-w", "%{time_total}\n", url + fmt.Sprintf("/[1-%d]", i.pick(200, 50))},
	} {
		// The allowed address leads through the proxy, which NO_PROXY would avoid.
		argv := append([]string{"curl", "-sS", "--noproxy", "", "-o", "/dev/null"}, args...)
		_, r, err := i.run(ctx, spool.Spec{Argv: argv, Cwd: i.room, Env: map[string]string{"PATH": os.Getenv("PATH")},
			Isolation: &spool.Isolation{Profile: string(isolate.NetAllow), Hosts: []string{"127.0.0.1"}}})
		if err != nil {
			return err
		}
		out, err := r.Output(ctx, spool.Stdout)
		if err != nil {
			return err
		}
		for n, field := range strings.Fields(string(out)) {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return fmt.Errorf("curl printed %q", field)
			}
			if n > 0 || metric == "isolation.proxy.rate" { // the first request connects
				i.add(subjectSpool, metric, v)
			}
		}
	}
	return nil
}

// zeroReader reads zeros.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// kills kills isolated runs with children in sessions of their own at different
// moments, and counts the processes that are left.
func (i *isolationBench) kills(ctx context.Context) error {
	mark := fmt.Sprintf("9%d", time.Now().UnixNano())
	script := fmt.Sprintf("setsid sleep %s & (setsid sleep %s & exec setsid sleep %s) & echo ready; wait", mark, mark, mark)
	for n := range i.pick(40, 10) {
		r, err := spool.Start(ctx, i.host, spool.Spec{Argv: []string{"/bin/sh", "-c", script}, Cwd: i.room, Isolation: &spool.Isolation{Profile: string(isolate.Offline)}})
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(n) * 250 * time.Microsecond) // the moment of the kill is what differs
		if err := r.Kill(ctx); err != nil && !errors.Is(err, spool.ErrClosed) {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		left, _ := exec.CommandContext(ctx, "pgrep", "-f", "sleep "+mark).Output() // its status says whether there are any
		i.add(subjectSpool, "isolation.survivors", float64(len(strings.Fields(string(left)))))
	}
	return nil
}

// escapes makes the attempts to leave every profile.
func (i *isolationBench) escapes(ctx context.Context) error {
	for range i.pick(40, 2) {
		err := isolate.Suite(ctx, nil, func(r isolate.Result) error {
			if r.Name == string(isolate.None) || r.Refused != "" {
				return nil
			}
			escaped := 0
			for _, a := range r.Attempts {
				if a.Escaped {
					escaped++
				}
			}
			i.add(subjectSpool, "isolation.escapes", float64(escaped))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
