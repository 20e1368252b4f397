package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

func TestConfigDefaults(t *testing.T) {
	c, err := decode(&spool.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	want := python.SandboxLimits{WallMs: 300_000, OutputBytes: 1 << 20, AskMs: 30_000, MemoryBytes: 256 << 20, OpenFiles: 256}
	if c.Backend != python.BackendEmbedded || c.Limits != want {
		t.Errorf("the default is %+v, with the limits %+v", c, c.Limits)
	}
	for config, backend := range map[string]string{
		`{}`: python.BackendEmbedded, `{"backend":"auto"}`: python.BackendEmbedded, `{"packages":["numpy"]}`: python.BackendPyodide,
		`{"dist":"/x"}`: python.BackendPyodide, `{"backend":"pyodide"}`: python.BackendPyodide,
	} {
		c, err := decode(&spool.Spec{Config: json.RawMessage(config)})
		if err != nil || c.Backend != backend {
			t.Errorf("%s is %q, %v; want %q", config, c.Backend, err, backend)
		}
	}
}

func TestInvalidConfigs(t *testing.T) {
	for config, want := range map[string]string{
		`{"backend":"magic"}`:                                  "unknown back end",
		`{"backend":"embedded","packages":["numpy"]}`:          "need the pyodide back end",
		`{"isolation":"total"}`:                                "unknown isolation",
		`{"mounts":[{"host":"/x","guest":"relative"}]}`:        "must be absolute",
		`{"mounts":[{"host":"/x","guest":"/"}]}`:               "and not /",
		`{"mounts":[{"host":"/x","guest":"/..","mode":"ro"}]}`: "and not /",
		`{"mounts":[{"host":"/x","guest":"/x","mode":"rwx"}]}`: "unknown mode",
		`{"limits":{"memory_bytes":-1}}`:                       "negative",
		`{"offer":["a*b"]}`:                                    "use the kind",
		`{"unknown":1}`:                                        `unknown key "unknown"`,
		`{"limits":{"wal_ms":1}}`:                              `unknown key "limits.wal_ms" in sandbox config; did you mean "limits.wall_ms"?`,
		`{"Packages":[]}`:                                      `unknown key "Packages" in sandbox config; did you mean "packages"?`,
		`{"once":true,"once":false}`:                           `key "once" is given twice in sandbox config`,
		`{} {}`:                                                "after top-level value",
		`[]`:                                                   "must be an object",
	} {
		if _, err := decode(&spool.Spec{Config: json.RawMessage(config)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", config, err, want)
		}
	}
	for what, spec := range map[string]spool.Spec{
		"a terminal":            {TTY: &spool.Size{Rows: 1, Cols: 1}},
		"an environment policy": {EnvPolicy: &spool.EnvPolicy{Inherit: "core"}},
		"a variable with a NUL": {Env: map[string]string{"A": "\x00"}},
		"held back output":      {Limits: spool.Limits{OutputPolicy: "block"}},
	} {
		if _, err := decode(&spec); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func TestSmallestLimitApplies(t *testing.T) {
	for _, c := range []struct{ config, run, own, want int64 }{
		{0, 0, 0, 300_000}, {0, 0, 50, 50}, {100, 0, 0, 100}, {100, 0, 50, 50}, {100, 0, 500, 100},
		{100, 70, 0, 70}, {0, 70, 0, 70}, {-1, 0, 0, 0}, {-1, 0, 20, 20}, {-1, 90, 0, 90},
	} {
		l := python.SandboxLimits{WallMs: c.config}
		if err := completeLimits(&l, &spool.Limits{Wall: time.Duration(c.run) * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		if got := wallLimit(&l, c.own).Milliseconds(); got != c.want {
			t.Errorf("of %d in the configuration, %d in the spec and %d in the cell %d counts, want %d", c.config, c.run, c.own, got, c.want)
		}
	}
}

func TestAllowedHosts(t *testing.T) {
	hosts := []string{"example.org", "*.good.test", "192.0.2.1", "api.test:8080"}
	for host, want := range map[string]bool{
		"example.org": true, "EXAMPLE.org.": true, "sub.example.org": false, "a.good.test": true, "a.b.good.test": true,
		"good.test": false, "notgood.test": false, "192.0.2.1": true, "192.0.2.2": false, "api.test:8080": true, "api.test": false, "": false,
	} {
		if got := (&python.SandboxConfig{Hosts: hosts}).AllowsHost(host); got != want {
			t.Errorf("%q is allowed: %v, want %v", host, got, want)
		}
	}
}

// A host program may read keys in another case, or take the first or the last
// of two equal keys. So the hosts filter refuses payloads with several readings.
func TestHostsFilterReadsKeysExactly(t *testing.T) {
	c := &python.SandboxConfig{Hosts: []string{"good.test"}, Offer: []string{"*"}}
	for _, tt := range []struct {
		kind, payload string
		denied        bool
	}{
		{python.AskHTTP, `{"url":"http://good.test/"}`, false},
		{python.AskHTTP, `{"url":"http://good.test:8080/","method":"POST","headers":{"A":"b"},"body_base64":"eA=="}`, false},
		{python.AskHTTP, `{"url":"http://evil.test/"}`, true},
		{python.AskHTTP, `{"url":"http://evil.test/","URL":"http://good.test/"}`, true},
		{python.AskHTTP, `{"URL":"http://good.test/","url":"http://evil.test/"}`, true},
		{python.AskHTTP, `{"URL":"http://good.test/"}`, true},
		{python.AskHTTP, `{"url":"http://evil.test/","url":"http://good.test/"}`, true},
		{python.AskHTTP, `{"url":"http://good.test/","u\u0072l":"http://good.test/"}`, true},
		{python.AskHTTP, `{"url":"http://good.test/","uri":"http://evil.test/"}`, true},
		{python.AskHTTP, `{"url":"http://good.test/"} {"url":"http://evil.test/"}`, true},
		{python.AskHTTP, `[{"url":"http://good.test/"}]`, true},
		{python.AskDNS, `{"hostname":"good.test"}`, false},
		{python.AskDNS, `{"hostname":"good.test","family":4}`, false},
		{python.AskDNS, `{"hostname":"evil.test","Hostname":"good.test"}`, true},
		{python.AskDNS, `{"hostname":"evil.test","hostname":"good.test"}`, true},
		{python.AskDNS, `{"hostname":"good.test","url":"http://evil.test/"}`, true},
	} {
		if reason := denies(c, tt.kind, []byte(tt.payload)); reason != "" != tt.denied {
			t.Errorf("%s %s: denied %q, want denied %v", tt.kind, tt.payload, reason, tt.denied)
		}
	}
}

// events collects what an output appends.
type events []string

func (e *events) append(ev spool.Event) error {
	*e = append(*e, string(ev.Stream)+":"+string(ev.Bytes)+string(ev.Data))
	return nil
}

func TestOutputIsBatchedWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all events
		o := newOutput(1, 100, all.append, func() {})
		seen := func() events { // its lock guards what it appends
			o.mu.Lock()
			defer o.mu.Unlock()
			return slices.Clone(all)
		}
		o.write(guest.Stdout, []byte("line"))
		o.write(guest.Stdout, []byte("\n")) // at once
		if got, want := seen(), (events{"stdout:line\n"}); !reflect.DeepEqual(got, want) {
			t.Errorf("a line is %q, want %q", got, want)
		}
		o.write(guest.Stdout, []byte("next\n")) // closely after it
		o.write(guest.Stdout, []byte("and "))
		if got := seen(); len(got) != 1 {
			t.Errorf("crumbs were not held back: %q", got)
		}
		time.Sleep(2 * outputMoment)
		synctest.Wait()
		if got, want := seen(), (events{"stdout:line\n", "stdout:next\nand "}); !reflect.DeepEqual(got, want) {
			t.Errorf("after a moment there is %q, want %q", got, want)
		}
		o.write(guest.Stdout, []byte("o"))
		o.write(guest.Stderr, []byte("e")) // the order of streams stays
		o.write(guest.Stdout, []byte(strings.Repeat("x", 200)))
		o.close()
		o.write(guest.Stdout, []byte("too late"))
		want := events{
			"stdout:line\n", "stdout:next\nand ", "stdout:o", "stderr:e", "stdout:" + strings.Repeat("x", 85),
			`:{"dropped_bytes":{"stdout":115},"limit_bytes":100}`,
		}
		if got := seen(); !reflect.DeepEqual(got, want) {
			t.Errorf("in the end there is\n%q\nwant\n%q", got, want)
		}
	})
}

func TestStdinBlocksForInputAndForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStdin()
		ctx, cancel := context.WithCancel(t.Context())
		read := make(chan string, 1)
		go func() {
			p := make([]byte, 10)
			n, err := s.read(ctx, p)
			if err != nil {
				t.Errorf("read: %v", err)
			}
			read <- string(p[:n])
		}()
		synctest.Wait()
		if err := s.write(ctx, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != "hello" {
			t.Errorf("read %q", got)
		}
		if err := s.write(ctx, make([]byte, MaxStdin)); err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error, 1)
		go func() { wrote <- s.write(ctx, []byte("more")) }()
		synctest.Wait()
		select {
		case err := <-wrote:
			t.Errorf("more than the most was taken: %v", err)
		default:
		}
		if n, err := s.read(ctx, make([]byte, MaxStdin)); n != MaxStdin || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		s.end()
		p := make([]byte, 10)
		if n, err := s.read(ctx, p); string(p[:n]) != "more" || err != nil {
			t.Errorf("read %q, %v", p[:n], err)
		}
		if _, err := s.read(ctx, p); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		cancel()
		if _, err := newStdin().read(ctx, p); !errors.Is(err, context.Canceled) {
			t.Errorf("of a script that was stopped: %v", err)
		}
	})
}

func TestIdleTimerFiresOnlyWithoutActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := time.Time{}
		began := time.Now()
		timer := newIdleTimer(100*time.Millisecond, func() { fired = time.Now() })
		for range 5 {
			time.Sleep(60 * time.Millisecond)
			timer.reset()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		timer.close()
		if got := fired.Sub(began); got != 400*time.Millisecond {
			t.Errorf("it fired after %v, want 400ms", got)
		}
	})
}
