package sandboxtest

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/python"
)

// infoShowsIsolation checks that a run says what the system keeps it from, and that what
// it asks for is there or refused.
func infoShowsIsolation(t *testing.T, s Subject) {
	l := newLab(t, s)
	has := func(change func(spec *spool.Spec, c *python.SandboxConfig)) *spool.Isolation {
		t.Helper()
		b := l.start(change)
		info, err := b.run.Info(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Isolation == nil {
			t.Fatal("the run says nothing about its isolation")
		}
		return info.Isolation
	}
	plain := has(nil)
	if plain.Profile != "none" || (plain.Mechanism == "none") != (len(plain.Guarantees) == 0) {
		t.Errorf("without a request: %+v", plain)
	}
	t.Logf("%s: %s", plain.Mechanism, strings.Join(plain.Guarantees, " "))
	if s.Config.Isolation == python.IsolateNone && plain.Mechanism != "none" {
		t.Errorf("it claims %+v in this process", plain)
	}
	// The profile is granted if the run has all that the profile needs.
	request := func(profile string, waive ...string) func(*spool.Spec, *python.SandboxConfig) {
		return func(spec *spool.Spec, _ *python.SandboxConfig) {
			spec.Isolation = &spool.Isolation{Profile: profile, Waive: waive}
		}
	}
	granted := !slices.ContainsFunc([]string{"W", "P", "N0", "I", "K", "S", "T"}, func(g string) bool { return !slices.Contains(plain.Guarantees, g) })
	if granted {
		if got := has(request("no-network")); got.Profile != "no-network" || got.Mechanism != plain.Mechanism || !reflect.DeepEqual(got.Guarantees, plain.Guarantees) {
			t.Errorf("no-network: %+v, want %+v", got, plain)
		}
	} else {
		refused(t, l, engine.StartUnsupported, "isolation_unavailable: profile \"no-network\" needs ", request("no-network"))
	}
	refused(t, l, engine.StartUnsupported, "isolation_unavailable: profile \"strict\" needs ", request("strict"))
	// Requests to hosts are a network.
	network := func(profile string) func(*spool.Spec, *python.SandboxConfig) {
		return func(spec *spool.Spec, c *python.SandboxConfig) {
			c.Hosts, c.Offer = []string{"example.org"}, []string{python.AskHTTP}
			if profile != "" {
				spec.Isolation = &spool.Isolation{Profile: profile}
			}
		}
	}
	if got := has(network("")); slices.Contains(got.Guarantees, "N0") || slices.Contains(got.Guarantees, "NP") != slices.Contains(plain.Guarantees, "N0") {
		t.Errorf("with hosts: %+v", got)
	}
	refused(t, l, engine.StartUnsupported, "needs ", network("no-network"))
	refused(t, l, engine.StartInvalid, "no writable paths", func(spec *spool.Spec, _ *python.SandboxConfig) {
		spec.Isolation = &spool.Isolation{Profile: "workspace-write", Writable: []string{"/tmp"}}
	})
	refused(t, l, engine.StartInvalid, "excludes the mount /data", func(spec *spool.Spec, c *python.SandboxConfig) {
		spec.Isolation = &spool.Isolation{Profile: "read-only"}
		c.Mounts = []python.Mount{{Host: t.TempDir(), Guest: "/data", Mode: python.MountReadWrite}}
	})
}

// refused checks that a start is refused for a reason and with a text.
func refused(t *testing.T, l *lab, reason, text string, change func(*spool.Spec, *python.SandboxConfig)) {
	t.Helper()
	_, err := l.tryStart(change)
	var start *spool.StartError
	if !errors.As(err, &start) || start.Reason != reason || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want %s with %q", err, reason, text)
	}
}
