package record_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

func someStarts() map[string]record.Start {
	return map[string]record.Start{
		"nothing": {},
		"little":  {Spec: spool.Spec{ID: "r1", Argv: []string{"true"}}, Update: true},
		"not UTF-8": {Spec: spool.Spec{
			Argv: []string{"\xff", ""}, Cwd: "/\xfe", Env: map[string]string{"A": "\xfd", "": "x"},
		}},
		"all": {Update: true, Spec: spool.Spec{
			ID: "r1", Name: "n", Engine: "e", Labels: map[string]string{"a": "b", "c": "d"}, Argv: []string{"x", "y"}, Arg0: "z",
			Cwd: "/", Env: map[string]string{"HOME": "/root"}, EnvPolicy: &spool.EnvPolicy{Inherit: "core", Exclude: []string{"X*"}},
			TTY: &spool.Size{Rows: 25, Cols: 65535}, Stdin: true, Config: json.RawMessage(`{"k":1}`),
			Limits: spool.Limits{Wall: time.Hour, Idle: -1, Grace: time.Second, OutputBytes: 1 << 40, OutputPolicy: "block", Pids: 7},
		}},
	}
}

func TestStartRoundTrip(t *testing.T) {
	for name, p := range someStarts() {
		t.Run(name, func(t *testing.T) {
			b, err := record.AppendStart(nil, &p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := record.DecodeStart(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p, got); diff != "" {
				t.Error(diff)
			}
			for n := range b {
				if _, err := record.DecodeStart(b[:n]); err == nil {
					t.Errorf("cut at %d of %d: no error", n, len(b))
				}
			}
		})
	}
}

func FuzzDecodeStart(f *testing.F) {
	for _, p := range someStarts() {
		b, err := record.AppendStart(nil, &p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := record.DecodeStart(b)
		if err != nil {
			return
		}
		again, err := record.AppendStart(nil, &p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := record.DecodeStart(again)
		if diff := cmp.Diff(p, q); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
