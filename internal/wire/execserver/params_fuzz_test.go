package execserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// FuzzDecode checks that params are decoded as encoding/json decodes them, or
// refused with a wire error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"n","list":["a"],"map":{"a":"b"},"count":5,"flag":true,"raw":[1],"maybe":null}`))
	f.Add([]byte(`{"name":null}`))
	f.Add([]byte(`{"list":["a",null],"count":1.5}`))
	f.Add([]byte(` null `))
	f.Add([]byte(`{"map":{"a":null},"name":"\u00e9","count":-1}`))
	type params struct {
		Name  string            `json:"name"`
		List  []string          `json:"list"`
		Map   map[string]string `json:"map"`
		Count uint16            `json:"count"`
		Flag  bool              `json:"flag"`
		Raw   json.RawMessage   `json:"raw"`
		Maybe *int              `json:"maybe"`
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := rpc.Parse([]byte(`{"method":"m","params":` + string(b) + `}`)); err != nil {
			return // params are decoded after their message was parsed
		}
		var got, want params
		if err := decode(b, &got); err != nil {
			var e *rpc.Error
			if !errors.As(err, &e) || e.Code != rpc.CodeInvalidParams {
				t.Fatalf("%s: %v is not a wire error", b, err)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(b, &members); err != nil {
			t.Fatalf("%s is taken: %v", b, err)
		}
		for name, raw := range members {
			switch name {
			case "name", "list", "map", "count", "flag", "raw", "maybe":
				one, err := json.Marshal(map[string]json.RawMessage{name: raw})
				if err == nil {
					err = json.Unmarshal(one, &want)
				}
				if err != nil {
					t.Fatalf("%s is taken: %v", b, err)
				}
			}
		}
		a, errA := json.Marshal(got)
		c, errC := json.Marshal(want)
		if errA != nil || errC != nil || string(a) != string(c) {
			t.Fatalf("%s became %s, want %s", b, a, c)
		}
	})
}

// FuzzBase64 checks that only padded standard base64 in its one form is taken.
func FuzzBase64(f *testing.F) {
	for _, s := range []string{"", "aGk=", "aGk", "aGl=", "a", "aG\n=", "====", "aGkh\r\n", "-_8=", "aGk=aGk="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := decodeBase64(s)
		if err == nil && base64.StdEncoding.EncodeToString(b) != s {
			t.Errorf("%q is taken as %x", s, b)
		}
		if again, err := decodeBase64(base64.StdEncoding.EncodeToString([]byte(s))); err != nil || string(again) != s {
			t.Errorf("%q came back as %q: %v", s, again, err)
		}
	})
}

// FuzzUUID checks that a UUID has one canonical form.
func FuzzUUID(f *testing.F) {
	for _, s := range []string{
		"01a1dc83-0000-7000-8000-000000000001", "{01A1DC83-0000-7000-8000-000000000001}", "urn:uuid:01a1dc83000070008000000000000001", "01a1dc83", "{}", "{x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := parseUUID(s)
		if !ok {
			return
		}
		if again, ok := parseUUID(id); !ok || again != id || len(id) != 36 || strings.ToLower(id) != id {
			t.Errorf("%q is %q, and that is %q", s, id, again)
		}
	})
}
