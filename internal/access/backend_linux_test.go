package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/audit"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/python"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role { // the first process of a sandbox
		os.Exit(isolate.Work(os.Args[2:]))
	}
	leaktest.Main(m)
}

func openHost(t *testing.T) *host.Host {
	t.Helper()
	processes := func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) }
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess:  processes,
		python.EngineSandbox: processes, // a quota only looks at the name
		access.AuditEngine:   func(string) (engine.Engine, error) { return audit.Engine{}, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func openAudit(t *testing.T, b spool.Backend) *access.Audit {
	t.Helper()
	a, err := access.OpenAudit(t.Context(), b, "server", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil && !errors.Is(err, spool.ErrClosed) {
			t.Error(err)
		}
	})
	return a
}

var sh, start = backendtest.Shell, backendtest.Start

// follower is a backend that has events as records.
type follower interface {
	spool.Backend
	spool.Remover
	spool.Renamer
	spool.Counter
	spool.Watcher
	spool.Meter
	spool.Workspaces
	record.Follower
}

// closable is a guarded backend that the suite can close.
type closable struct {
	follower
	io.Closer
}

// A subject does not notice that its backend is guarded.
func TestGuardedBackend(t *testing.T) {
	large := access.Quotas{Live: 1 << 20, Sandboxes: 1, StartsPerMinute: 1 << 20, DiskBytes: 1 << 40, AnswerRate: 1 << 40}
	for name, s := range map[string]*access.Subject{
		"admin":   {Name: "root", Scopes: access.Scopes{access.Admin}},
		"subject": {Name: "alice", Scopes: append(access.DefaultScopes(), access.Delete), Quotas: large},
	} {
		if race && name == "subject" {
			continue // the suite takes a minute of processor time
		}
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) spool.Backend {
				h := openHost(t)
				var log *access.Audit
				if name == "subject" { // its list does not have the audit log
					log = openAudit(t, h)
				}
				b := access.NewGuard(h, log).Backend(s, "test")
				return closable{b.(follower), h}
			})
		})
	}
}

func TestOwnerIsNotGuarded(t *testing.T) {
	h := openHost(t)
	for _, s := range []*access.Subject{nil, access.Owner()} {
		if b := access.NewGuard(h, nil).Backend(s, ""); b != spool.Backend(h) {
			t.Errorf("%T", b)
		}
	}
	b := access.NewGuard(h, openAudit(t, h)).Backend(access.Owner(), "")
	r := start(t, b, sh("true"))
	if info, err := r.Info(t.Context()); err != nil || len(info.Labels) != 0 {
		t.Errorf("%v, %v", info.Labels, err)
	}
}

// TestNotifyNeedsProcesses checks that a subject that may not start processes cannot
// have one started at the end of a run.
func TestNotifyNeedsProcesses(t *testing.T) {
	b := access.NewGuard(openHost(t), nil).Backend(&access.Subject{Name: "alice", Scopes: access.Scopes{access.StartOf("kernel")}}, "")
	_, err := b.Start(t.Context(), spool.Spec{Engine: "kernel", Notify: []string{"true"}})
	if !errors.Is(err, spool.ErrDenied) || !strings.Contains(err.Error(), "runs:start:process") {
		t.Errorf("start: %v", err)
	}
}

func TestQuotas(t *testing.T) {
	h := openHost(t)
	guard := access.NewGuard(h, nil)
	of := func(name string, q access.Quotas) spool.Backend {
		return guard.Backend(&access.Subject{Name: name, Scopes: access.DefaultScopes(), Quotas: q}, "")
	}
	refused := func(b spool.Backend, spec spool.Spec, want error, text string) {
		t.Helper()
		_, err := b.Start(t.Context(), spec)
		var se *spool.StartError
		if !errors.Is(err, want) || !errors.As(err, &se) || se.Reason != "limit" || se.Hint == "" || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v with %q", err, want, text)
		}
	}

	t.Run("live", func(t *testing.T) {
		spec := sh("read x")
		spec.Stdin = true
		before := start(t, of("live", access.Quotas{}), spec) // an earlier server's
		// Two connections share one quota.
		first, second := of("live", access.Quotas{Live: 2}), of("live", access.Quotas{Live: 2})
		spec.ID = "again"
		r := start(t, first, spec)
		refused(second, sh("true"), spool.ErrBusy, "2 live runs")
		refused(first, sh("true"), spool.ErrBusy, "2 live runs")
		if info, err := second.Start(t.Context(), spec); err != nil || info.ID != r.ID() {
			t.Errorf("a repeated start: %v", err)
		}
		start(t, of("other", access.Quotas{Live: 1}), sh("true"))
		for _, r := range []*spool.Run{before, r} {
			if err := r.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		start(t, second, sh("true"))
	})

	t.Run("a failed start counts not", func(t *testing.T) {
		b := of("failing", access.Quotas{Live: 1})
		for range 3 {
			var se *spool.StartError
			if _, err := b.Start(t.Context(), spool.Spec{Argv: []string{"/none"}, Cwd: "/"}); !errors.As(err, &se) || se.Reason != "not_found" {
				t.Fatal(err)
			}
		}
		start(t, b, sh("true"))
	})

	t.Run("sandboxes", func(t *testing.T) {
		b := of("sandboxes", access.Quotas{Sandboxes: 1})
		spec := sh("read x")
		spec.Engine, spec.Stdin = python.EngineSandbox, true
		start(t, b, spec)
		refused(b, spec, spool.ErrBusy, "1 live sandboxes")
		start(t, b, sh("true"))
	})

	t.Run("starts per minute", func(t *testing.T) {
		const limit = 3
		b := of("starts", access.Quotas{StartsPerMinute: limit})
		before, n := time.Now(), 0
		for ; ; n++ {
			_, err := b.Start(t.Context(), sh("true"))
			if n >= limit && err != nil {
				break
			}
			// On a busy machine the quota allows more meanwhile.
			if most := limit + limit*time.Since(before).Minutes(); err != nil || float64(n+1) > most {
				t.Fatalf("start %d after %v: %v", n+1, time.Since(before), err)
			}
		}
		refused(b, sh("true"), spool.ErrBusy, "try again in")
	})

	t.Run("disk", func(t *testing.T) {
		b := of("disk", access.Quotas{DiskBytes: 1000})
		r := start(t, b, sh("head -c 5000 /dev/zero"))
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := r.Info(t.Context())
		if err != nil || info.Bytes > 1000 {
			t.Errorf("a run logged %d bytes, %v", info.Bytes, err)
		}
		// What another connection used is found at the next sum.
		refused(access.NewGuard(h, nil).Backend(&access.Subject{Name: "disk", Scopes: access.DefaultScopes(), Quotas: access.Quotas{DiskBytes: info.Bytes}}, ""),
			sh("true"), spool.ErrDenied, "bytes of output and blobs on disk")
	})

	t.Run("answers", func(t *testing.T) {
		const rate, size = 400_000, 500_000
		spec := sh(fmt.Sprintf("head -c %d /dev/zero", size))
		r := start(t, of("answers", access.Quotas{}), spec)
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		paced := spool.Attach(of("answers", access.Quotas{AnswerRate: rate}), r.ID())
		before := time.Now()
		got := 0
		for e, err := range paced.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			got += len(e.Bytes)
		}
		// The first second's worth comes at once.
		if took, want := time.Since(before), time.Second*(size-rate)/rate; got != size || took < want {
			t.Errorf("%d bytes in %v, want at least %v", got, took, want)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(io.ErrNoProgress)
		if _, err := paced.Read(ctx, spool.Query{}); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("a read that ends while it waits: %v", err)
		}
	})
}

// auditEntries reads an audit log that has ended.
func auditEntries(t *testing.T, b spool.Backend, id spool.RunID) (entries []access.Entry, raw string) {
	t.Helper()
	for e, err := range b.Follow(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != spool.KindNotice {
			continue
		}
		var n spool.Notice
		var entry access.Entry
		if err := json.Unmarshal(e.Data, &n); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(n.Data, &entry); err != nil {
			t.Fatal(err)
		}
		entries, raw = append(entries, entry), raw+string(e.Data)+"\n"
	}
	return entries, raw
}

func TestAuditLog(t *testing.T) {
	h := openHost(t)
	log := openAudit(t, h)
	guard := access.NewGuard(h, log)
	alice := &access.Subject{Name: "alice", Scopes: access.DefaultScopes()}
	bob := &access.Subject{Name: "bob", Scopes: access.Scopes{access.Read}}
	admin := &access.Subject{Name: "root", Scopes: access.Scopes{access.Admin}}
	guard.Connected(alice, "here")
	a, b, c := guard.Backend(alice, "here"), guard.Backend(bob, "there"), guard.Backend(admin, "desk")

	spec := sh("read x; echo hunter2")
	spec.Stdin, spec.Env["SECRET"] = true, "hunter3"
	r := start(t, a, spec)
	for _, text := range []string{"hun", "ter4\n"} {
		if _, err := r.Stdin(t.Context()).Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is not written
		if _, err := a.Read(t.Context(), r.ID(), spool.Query{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Control(t.Context(), r.ID(), spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(t.Context(), r.ID(), spool.Query{}); !errors.Is(err, spool.ErrNotFound) {
		t.Error(err)
	}
	if _, err := b.Start(t.Context(), spec); !errors.Is(err, spool.ErrDenied) {
		t.Error(err)
	}
	// Only admin sees the log, and no client changes it.
	if _, err := a.Stat(t.Context(), log.Run()); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("alice sees the audit log: %v", err)
	}
	if err := c.Control(t.Context(), log.Run(), spool.Control{Op: spool.ControlKill}); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("kill of the audit log: %v", err)
	}
	if _, err := c.Send(t.Context(), log.Run(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("{}\n")}); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("write to the audit log: %v", err)
	}
	if _, err := c.Start(t.Context(), spool.Spec{Engine: access.AuditEngine}); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("start of an audit log: %v", err)
	}
	guard.Disconnected(alice, "here", a, "")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	entries, raw := auditEntries(t, c, log.Run())
	var got []string
	for _, e := range entries {
		if e.Time.IsZero() {
			t.Error("an entry has no time")
		}
		run := ""
		switch e.Run {
		case r.ID():
			run = " RUN"
		case log.Run():
			run = " LOG"
		}
		got = append(got, fmt.Sprintf("%s@%s %s %s%s %d %s", e.Subject, e.From, e.Act, e.What, run, e.Bytes, e.Reason))
	}
	want := []string{
		"alice@here connect  0 ", "alice@here start process RUN 0 ", "alice@here input stdin RUN 0 ",
		"alice@here read  RUN 0 ", "alice@here control kill RUN 0 ",
		"bob@there denied read RUN 0 not found", "bob@there denied start 0 denied", "alice@here denied read LOG 0 not found",
		"root@desk denied control LOG 0 denied", "root@desk denied input LOG 0 denied", "root@desk denied start 0 denied",
		"alice@here input stdin RUN 8 ", "alice@here disconnect  0 ",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(raw, "hunter") {
		t.Errorf("the audit log holds secrets:\n%s", raw)
	}
}

// waiter is a backend that waits for ends.
type waiter struct{ *host.Host }

func (w waiter) Execute(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	return spool.Execute(ctx, w.Host, spec)
}

// TestExecuteIsAudited checks that the audit log has each run whose starter wanted to wait
// for its end, and that it counts against quotas, also if the wait ended first.
func TestExecuteIsAudited(t *testing.T) {
	h := openHost(t)
	log := openAudit(t, h)
	guard := access.NewGuard(waiter{h}, log)
	alice := &access.Subject{Name: "alice", Scopes: access.DefaultScopes(), Quotas: access.Quotas{Live: 1}}
	b := guard.Backend(alice, "here")

	short, err := spool.Execute(t.Context(), b, sh("exit 3"))
	if err != nil || short.Outcome.ExitCode() != 3 || short.Labels[access.LabelSubject] != "alice" {
		t.Fatalf("%+v, %v", short, err)
	}
	// The wait ends when the run is there.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := spool.Execute(ctx, b, sh("exec sleep 1000"))
		ended <- err
	}()
	var live []spool.Info
	polltest.Until(t, "the run", func() bool {
		live = live[:0]
		for info, err := range b.List(t.Context(), spool.Filter{Live: true}) {
			if err != nil {
				t.Fatal(err)
			}
			live = append(live, info)
		}
		return len(live) == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := spool.Execute(t.Context(), b, sh("true")); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("a second live run: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	entries, _ := auditEntries(t, guard.Backend(&access.Subject{Name: "root", Scopes: access.Scopes{access.Admin}}, "desk"), log.Run())
	var got []spool.RunID
	for _, e := range entries {
		if e.Act == access.ActStart {
			got = append(got, e.Run)
		}
	}
	if want := []spool.RunID{short.ID, live[0].ID}; !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

// A server whose audit log was ended starts another one.
func TestAuditLogIsReplaced(t *testing.T) {
	h := openHost(t)
	log := openAudit(t, h)
	first := log.Run()
	if err := h.Control(t.Context(), first, spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Attach(h, first).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	access.NewGuard(h, log).Connected(access.Owner(), "x")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := auditEntries(t, h, log.Run()); log.Run() == first || len(entries) != 1 {
		t.Errorf("%+v", entries)
	}
}

// Nothing is changed that cannot be written to the audit log.
func TestBrokenAuditLogRefusesChanges(t *testing.T) {
	h, elsewhere := openHost(t), openHost(t)
	log := openAudit(t, elsewhere)
	guard := access.NewGuard(h, log)
	b := guard.Backend(&access.Subject{Name: "alice", Scopes: access.DefaultScopes()}, "")
	r := start(t, b, sh("true"))
	if err := elsewhere.Close(); err != nil {
		t.Fatal(err)
	}
	guard.Connected(access.Owner(), "x")
	for {
		_, err := b.Start(t.Context(), sh("true"))
		if errors.Is(err, spool.ErrBusy) && strings.Contains(err.Error(), "audit log") {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Control(t.Context(), r.ID(), spool.Control{Op: spool.ControlKill}); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("control: %v", err)
	}
	if _, err := b.Read(t.Context(), r.ID(), spool.Query{}); err != nil {
		t.Errorf("read: %v", err)
	}
}
