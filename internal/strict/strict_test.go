package strict_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/strict"
)

type limits struct {
	WallMs int64 `json:"wall_ms,omitempty"`
	Pids   int   `json:"pids,omitempty"`
}

type config struct {
	Name      string            `json:"name,omitempty"`
	TimeoutMs int64             `json:"timeout_ms,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Limits    limits            `json:"limits,omitzero"`
	More      *limits           `json:"more,omitempty"`
	All       []limits          `json:"all,omitempty"`
	ByName    map[string]limits `json:"by_name,omitempty"`
	Raw       json.RawMessage   `json:"raw,omitempty"`
	Bytes     []byte            `json:"bytes,omitempty"`
	Since     time.Time         `json:"since,omitzero"`
	Hidden    int               `json:"-"`
}

func TestUnmarshal(t *testing.T) {
	const in = `{"name":"n","timeout_ms":5,"env":{"A":"1","a":"2"},"limits":{"wall_ms":1},"more":{"pids":2},"all":[{"pids":3},{}],
		"by_name":{"x":{"pids":4}},"raw":{"any":{"thing":1}},"bytes":"aGk=","since":"2026-11-15T01:02:03Z"}`
	want := config{
		Name: "n", TimeoutMs: 5, Env: map[string]string{"A": "1", "a": "2"}, Limits: limits{WallMs: 1}, More: &limits{Pids: 2},
		All: []limits{{Pids: 3}, {}}, ByName: map[string]limits{"x": {Pids: 4}}, Raw: json.RawMessage(`{"any":{"thing":1}}`),
		Bytes: []byte("hi"), Since: time.Date(2026, 11, 15, 1, 2, 3, 0, time.UTC),
	}
	var got config
	if err := strict.Unmarshal([]byte(in), &got, "config"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := strict.Unmarshal([]byte("null"), &got, "config"); err != nil {
		t.Error(err)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{"timout_ms":1}`:                             `unknown key "timout_ms" in config; did you mean "timeout_ms"?`,
		`{"timeoutMs":1}`:                             `unknown key "timeoutMs" in config; did you mean "timeout_ms"?`,
		`{"timeout":1}`:                               `unknown key "timeout" in config; did you mean "timeout_ms"?`,
		`{"Name":"x"}`:                                `unknown key "Name" in config; did you mean "name"?`,
		`{"name":"x","NAME":"y"}`:                     `unknown key "NAME" in config; did you mean "name"?`,
		`{"zebra":1}`:                                 `unknown key "zebra" in config; the keys are name, timeout_ms, env, limits, more, all, by_name, raw, bytes, since`,
		`{"Hidden":1}`:                                `unknown key "Hidden" in config; the keys are name, timeout_ms, env, limits, more, all, by_name, raw, bytes, since`,
		`{"limits":{"wal_ms":1}}`:                     `unknown key "limits.wal_ms" in config; did you mean "limits.wall_ms"?`,
		`{"more":{"pid":1}}`:                          `unknown key "more.pid" in config; did you mean "more.pids"?`,
		`{"all":[{},{"pid":1}]}`:                      `unknown key "all.pid" in config; did you mean "all.pids"?`,
		`{"by_name":{"x":{"pid":1}}}`:                 `unknown key "by_name.x.pid" in config; did you mean "by_name.x.pids"?`,
		`{"name":"x","name":"x"}`:                     `key "name" is given twice in config`,
		`{"env":{"A":"1","A":"2"}}`:                   `key "env.A" is given twice in config`,
		`{"limits":{"pids":1},"limits":{"pids":null}`: `key "limits" is given twice in config`,
		`{"timeout_ms":"1s"}`:                         `"timeout_ms" in config must be a number of type int64, not a string`,
		`{"timeout_ms":1.5}`:                          `"timeout_ms" in config must be a number of type int64, not number 1.5`,
		`{"limits":{"pids":[]}}`:                      `"limits.pids" in config must be a number of type int, not an array`,
		`{"env":["A=1"]}`:                             `"env" in config must be an object, not an array`,
		`[]`:                                          `config must be an object, not an array`,
		`"x"`:                                         `config must be an object, not a string`,
		`{"name":`:                                    `decode config: unexpected EOF`,
		`{} {}`:                                       `decode config: invalid character '{' after top-level value`,
		``:                                            `decode config: unexpected EOF`,
	} {
		var c config
		if err := strict.Unmarshal([]byte(in), &c, "config"); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", in, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"name", "cell_timeout_ms", "start_timeout_ms", "wall_ms", "memory_bytes"}
	for name, want := range map[string]string{
		"nam": "name", "NAME": "name", "cell_timout_ms": "cell_timeout_ms", "cellTimeout": "cell_timeout_ms", "start-timeout": "start_timeout_ms",
		"timeout": "cell_timeout_ms", "wall": "wall_ms", "memory": "memory_bytes", "memroy_bytes": "memory_bytes", "zebra": "", "": "", "ms": "",
	} {
		if got, ok := strict.Nearest(name, names); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", name, got, ok, want)
		}
	}
}

// FuzzUnmarshal checks that what is taken is what encoding/json takes, and that
// every key of it is known.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"name":"n","limits":{"wall_ms":1},"all":[{}],"env":{"A":"1"}}`))
	f.Add([]byte(`{"Name":"n","limits":{"x":[[[{}]]]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want config
		err := strict.Unmarshal(b, &got, "config")
		if plain := json.Unmarshal(b, &want); plain != nil && err == nil {
			t.Fatalf("taken, but not by encoding/json: %v", plain)
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			t.Fatal(diff)
		}
	})
}
