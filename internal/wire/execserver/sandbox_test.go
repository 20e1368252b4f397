package execserver

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/rpc"
)

func TestCheckSandbox(t *testing.T) {
	level := func(permissions string) string {
		return `{"permissions":` + permissions + `,"windowsSandboxLevel":"disabled","cwd":"file:///ws","useLegacyLandlock":false}`
	}
	const (
		files   = "sandbox restricts the file system: isolation is not enforced by this server yet"
		network = "sandbox restricts the network: isolation is not enforced by this server yet"
	)
	for _, tt := range []struct{ sandbox, all, file string }{
		{``, "", ""},
		{`null`, "", ""},
		{level(`{"type":"disabled"}`), "", ""},
		{level(`{"type":"external","network":"restricted"}`), "", ""},
		{level(`{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}`), "", ""},
		{level(`{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}`), network, ""},
		{level(`{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"enabled"}`), files, files},
		{level(`{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"}`), files, files},
		{level(`{"type":"managed","network":"enabled"}`), "missing field `file_system`", "missing field `file_system`"},
		{level(`{"type":"managed","file_system":{"type":"unrestricted"}}`), "missing field `network`", "missing field `network`"},
		{level(`{"type":"managed","file_system":null,"network":"enabled"}`), "invalid type: null, expected an object", "invalid type: null, expected an object"},
		{level(`{"type":"managed","file_system":{"type":"x"},"network":"enabled"}`), "unknown variant `x`, expected `restricted` or `unrestricted`", "unknown variant `x`"},
		{level(`{"type":"managed","file_system":{"type":"unrestricted"},"network":"x"}`), "unknown variant `x`, expected `restricted` or `enabled`", "unknown variant `x`"},
		{level(`{"type":"x"}`), "unknown variant `x`, expected one of `managed`, `disabled`, `external`", "unknown variant `x`"},
		{level(`{}`), "missing field `type`", "missing field `type`"},
		{`{}`, "missing field `permissions`", "missing field `permissions`"},
		{`{"permissions":{"type":"disabled"}}`, "missing field `windowsSandboxLevel`", "missing field `windowsSandboxLevel`"},
		{`{"permissions":{"type":"disabled"},"windowsSandboxLevel":"x"}`, "unknown variant `x`, expected one of `disabled`", "unknown variant `x`"},
		{`3`, "invalid type: number", "invalid type: number"},
		{`[`, "invalid type: sequence, expected an object", "invalid type: sequence, expected an object"},
	} {
		check := func(name, want string, err error) {
			t.Helper()
			var e *rpc.Error
			switch {
			case want == "" && err != nil:
				t.Errorf("%s: %s: %v", name, tt.sandbox, err)
			case want != "" && (!errors.As(err, &e) || e.Code != rpc.CodeInvalidParams || !strings.HasPrefix(e.Message, want)):
				t.Errorf("%s: %s\n got %v\nwant %s", name, tt.sandbox, err, want)
			}
		}
		check("all", tt.all, checkSandbox(json.RawMessage(tt.sandbox)))
		check("files", tt.file, checkFileSandbox(json.RawMessage(tt.sandbox)))
	}
}

func FuzzSandbox(f *testing.F) {
	f.Add([]byte(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`))
	f.Add([]byte(`{"permissions":{"type":"external"},"windowsSandboxLevel":"elevated"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e *rpc.Error
		if err := checkSandbox(raw); err != nil && (!errors.As(err, &e) || e.Code != rpc.CodeInvalidParams) {
			t.Fatalf("%v is not a wire error", err)
		}
	})
}
