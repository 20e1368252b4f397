package spool_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// FuzzEventUnmarshal checks that an event that decodes is one line when it is
// encoded, and decodes to the same event again.
func FuzzEventUnmarshal(f *testing.F) {
	f.Add([]byte(`{"run":"r","seq":1,"time":"2026-11-15T01:02:03Z","kind":"output","stream":"stdout","text":"x"}`))
	f.Add([]byte(`{"text":"a","base64":"YQ=="}`))
	f.Add([]byte("{\"seq\":2,\"kind\":\"done\",\"data\":{\n\"outcome\":\"ok\"}}"))
	f.Add([]byte(`{"seq":3,"time":"0000-01-01T00:00:00+01:00","kind":"closed"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again spool.Event
		if json.Unmarshal(b, &e) != nil {
			return
		}
		line := e.AppendJSON(nil)
		if bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("more than one line: %q", line)
		}
		if err := json.Unmarshal(line, &again); err != nil {
			t.Fatalf("the decoded event does not encode: %v", err)
		}
		if len(e.Bytes) == 0 {
			e.Bytes = nil // an empty text is left out
		}
		e.Time = e.Time.UTC()
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzRequests checks that every other type with a JSON form decodes to the
// same value after it was encoded.
func FuzzRequests(f *testing.F) {
	for i, seed := range []string{
		`{"id":"a1","name":"n","engine":"process","labels":{"a":"b"},"argv":["sh","-c","true"],"arg0":"x","cwd":"/","env":{"A":"1"},"env_policy":{"inherit":"core","exclude":["X*"]},"tty":{"rows":24,"cols":80},"stdin":true,"limits":{"wall_ms":1000},"config":{"a":[1]}}`,
		`{"id":"a1","engine":"process","created":"2026-11-15T01:02:03.5Z","state":"closed","outcome":{"kind":"exited","code":137,"signal":"SIGKILL"},"last":9,"bytes":12}`,
		`{"wall_ms":9223372036854,"idle_ms":-1,"output_policy":"block","pids":5}`,
		`{"op":"stop","turn":3,"grace_ms":2500}`,
		`{"prefix":"a","since":"2026-11-15T01:02:03Z","limit":-1,"after":"zz.a"}`,
		`{"kind":"cell","id":"i","data":{"code":"1"},"bytes":"aGk="}`,
	} {
		f.Add(byte(i), []byte(seed))
	}
	checks := []func([]byte) error{
		again[spool.Spec], again[spool.Info], again[spool.Limits], again[spool.Control], again[spool.Filter], again[spool.Input],
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		if err := checks[int(which)%len(checks)](b); err != nil {
			t.Fatal(err)
		}
	})
}

// again decodes a value, encodes it, and decodes it once more. The values of
// the two must encode alike.
func again[T any](b []byte) error {
	var first, second T
	if json.Unmarshal(b, &first) != nil {
		return nil // it is refused
	}
	one, err := json.Marshal(first)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(one, &second); err != nil {
		return err
	}
	two, err := json.Marshal(second)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(string(one), string(two)); diff != "" {
		return errors.New(diff)
	}
	return nil
}

// FuzzCursor checks that a list goes on behind the cursor of a run, and that
// any other text is refused or selects in the order of the list.
func FuzzCursor(f *testing.F) {
	f.Add("a1", int64(1794704523000000000), "hvn4ug8hmrg0.a1", false)
	f.Add("0", int64(-1), "-1.0", true)
	f.Fuzz(func(t *testing.T, id string, ns int64, cursor string, oldest bool) {
		run := spool.Info{ID: spool.RunID(id), Created: time.Unix(0, ns)}
		filter := spool.Filter{After: cursor, Oldest: oldest}
		if filter.Check() != nil && filter.Match(&run) {
			t.Errorf("cursor %q makes no sense and selects %s", cursor, id)
		}
		if run.ID.Check() != nil {
			return
		}
		filter.After = run.Cursor()
		if err := filter.Check(); err != nil {
			t.Errorf("the cursor of a run is refused: %v", err)
		}
		if filter.Match(&run) {
			t.Error("a run comes after itself")
		}
		older, newer := run, run
		older.ID, newer.ID = "", run.ID+"z"
		if filter.Match(&older) == oldest || filter.Match(&newer) != oldest {
			t.Error("the list does not go on behind the cursor")
		}
	})
}

// TestEveryFuzzTargetHasACorpus checks that inputs are committed for each fuzz
// target, which every run of the tests executes.
func TestEveryFuzzTargetHasACorpus(t *testing.T) {
	declares := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	targets := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range declares.FindAllSubmatch(source, -1) {
			targets++
			dir := filepath.Join(filepath.Dir(path), "testdata", "fuzz", string(m[1]))
			if inputs, err := os.ReadDir(dir); err != nil || len(inputs) < 2 {
				t.Errorf("%s has %d inputs: %v; run scripts/fuzz 5s %s and copy some of $(go env GOCACHE)/fuzz/%s", dir, len(inputs), err, m[1], module)
			}
		}
		return nil
	})
	if err != nil || targets < 80 {
		t.Errorf("%d targets: %v", targets, err)
	}
}
