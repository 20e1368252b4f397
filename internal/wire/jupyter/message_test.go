package jupyter

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/wire/zmtp"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestSignatures(t *testing.T) {
	c := newCodec("secret")
	m, err := c.encode("kernel_info_request", nil, map[string]any{}, []byte("ada"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.decode(m)
	if err != nil || got.header.Type != "kernel_info_request" || string(got.content) != "{}" {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for at := 3; at < len(m); at++ {
		changed := append(zmtp.Message{}, m...)
		changed[at] = append([]byte(" "), m[at]...)
		if _, err := c.decode(changed); !errors.Is(err, errUnsigned) {
			t.Errorf("part %d was changed: %v", at, err)
		}
	}
	if _, err := newCodec("other").decode(m); !errors.Is(err, errUnsigned) {
		t.Errorf("another key: %v", err)
	}
	if _, err := c.decode(m[:4]); err == nil {
		t.Error("a part of a message was taken")
	}
	// Without a key nothing is signed.
	if m, err = newCodec("").encode("x", nil, nil); err == nil {
		_, err = newCodec("").decode(m)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestNameAt(t *testing.T) {
	for _, tt := range []struct {
		code   string
		cursor int
		want   string
	}{
		{"zip", 3, "zip"}, {"zip", 0, "zip"}, {"x = math.pi + 1", 10, "math.pi"}, {"x = math.pi", 6, "math"}, {"print(", 6, "print"}, {"f(a.b, c)", 5, "a.b"},
		{"größe + 1", 2, "größe"}, {"1 + ", 4, ""}, {"", 0, ""},
	} {
		if got := nameAt([]rune(tt.code), tt.cursor); got != tt.want {
			t.Errorf("nameAt(%q, %d) = %q, want %q", tt.code, tt.cursor, got, tt.want)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct{ transport, ip, want string }{
		{"tcp", "127.0.0.1", "tcp 127.0.0.1:5"}, {"", "::1", "tcp [::1]:5"}, {"tcp", "*", "tcp :5"}, {"ipc", "/run/k", "unix /run/k-5"},
	} {
		c := Connection{Transport: tt.transport, IP: tt.ip}
		if network, address := c.address(5); network+" "+address != tt.want {
			t.Errorf("%+v: %s %s, want %s", tt, network, address, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	c := newCodec("")
	f.Add([]byte(`{"msg_type":"x"}`), []byte(`{"code":"1","cursor_pos":9}`))
	f.Fuzz(func(t *testing.T, head, content []byte) {
		m, err := c.decode(zmtp.Message{[]byte(delimiter), nil, head, []byte("{}"), []byte("{}"), content})
		if err != nil {
			return
		}
		if p, cursor, err := decodePlace(m); err == nil {
			nameAt([]rune(p.Code), cursor)
		}
		_ = json.Unmarshal(m.content, new(request)) // must not panic
	})
}
