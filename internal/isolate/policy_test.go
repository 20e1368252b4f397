package isolate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/isolate"
)

func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   spool.Isolation
		want isolate.Policy
	}{
		{"the working directory is writable", spool.Isolation{Profile: "workspace-write"},
			isolate.Policy{Profile: isolate.WorkspaceWrite, Need: isolate.NewSet("W", "P", "I", "K", "S", "T"), Writable: []string{"/w/d"}}},
		{"read-only has no writable path", spool.Isolation{Profile: "read-only", Guarantees: []string{"N0"}},
			isolate.Policy{Profile: isolate.ReadOnly, Need: isolate.NewSet("W", "N0", "I", "K", "S", "T")}},
		{"protected below each writable path", spool.Isolation{Profile: "no-network", Writable: []string{".", "/x"}, Protected: []string{".git", "/x/a"}},
			isolate.Policy{Profile: isolate.Offline, Need: isolate.NewSet("W", "P", "N0", "I", "K", "S", "T"),
				Writable: []string{"/w/d", "/x"}, Protected: []string{"/w/d/.git", "/x/.git", "/x/a"}}},
		{"a waiver", spool.Isolation{Profile: "read-only", Waive: []string{"I", "T"}, Mechanism: "landlock"},
			isolate.Policy{Profile: isolate.ReadOnly, Need: isolate.NewSet("W", "K", "S"), Waived: isolate.NewSet("I", "T"), Mechanism: "landlock"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := isolate.NewPolicy(&tt.in, "/w/d/")
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Cwd = "/w/d"
			if diff := cmp.Diff(&tt.want, got, cmp.AllowUnexported(isolate.Policy{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPolicyErrors(t *testing.T) {
	for want, in := range map[string]spool.Isolation{
		`do you mean "read-only"?`:             {Profile: "readonly"},
		"no guarantee \"X\"":                   {Profile: "read-only", Guarantees: []string{"X"}},
		"waive: no guarantee":                  {Profile: "read-only", Waive: []string{"X"}},
		"no guarantee N0 to waive":             {Profile: "read-only", Waive: []string{"N0"}},
		"both required and waived":             {Profile: "read-only", Guarantees: []string{"I"}, Waive: []string{"I"}},
		"no isolation mechanism":               {Profile: "read-only", Mechanism: "chroot"},
		"hosts need the guarantee NP":          {Profile: "no-network", Hosts: []string{"example.org"}},
		"exclude each other":                   {Profile: "net-allow", Guarantees: []string{"N0"}},
		"readable paths need the guarantee R":  {Profile: "no-network", Readable: []string{"/x"}},
		"a bare tree needs the guarantee R":    {Profile: "no-network", Bare: true},
		"protected paths need the guarantee P": {Profile: "read-only", Protected: []string{".git"}},
		"is below no writable path":            {Profile: "no-network", Protected: []string{"/elsewhere/.git"}},
		"it leads out of":                      {Profile: "no-network", Protected: []string{"../x"}},
		"not a path":                           {Profile: "no-network", Writable: []string{""}},
		"is not an address of this machine":    {Profile: "net-allow", Proxy: "192.0.2.1:80"},
		"hosts and a proxy exclude":            {Profile: "net-allow", Proxy: "127.0.0.1:80", Hosts: []string{"example.org"}},
		"it is a URL":                          {Profile: "net-allow", Hosts: []string{"https://example.org"}},
		"the port is not":                      {Profile: "net-allow", DeniedHosts: []string{"example.org:0"}},
		"is not HOST:HEADER=FILE":              {Profile: "net-allow", Secrets: []string{"example.org"}},
		"name the hosts":                       {Profile: "net-allow", Secrets: []string{"*:A=file"}},
		"use profile net-allow":                {Profile: "no-network", AskHosts: true},
	} {
		if _, err := isolate.NewPolicy(&in, "/w"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", in, err, want)
		}
	}
}

func TestRefusalText(t *testing.T) {
	r := &isolate.Refusal{
		Profile: isolate.Offline, Missing: isolate.NewSet("N0"),
		Causes: []isolate.Cause{{"namespaces", "clone: operation not permitted"}, {"landlock", "ABI 4 cannot give I"}},
		Fixes:  []string{`use profile "read-only"`, "pass --waive N0"},
	}
	const want = `isolation_unavailable: profile "no-network" needs N0 (no network); namespaces: clone: operation not permitted; landlock: ABI 4 cannot give I`
	if r.Error() != want {
		t.Errorf("%s\nwant %s", r, want)
	}
	if r.Hint() != `use profile "read-only", or pass --waive N0` {
		t.Errorf("hint %s", r.Hint())
	}
}
