package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
)

// TestModel compares a journal with a slice of events over reopening, recovery
// and new segments.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "model")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		o := Options{
			SegmentBytes: rapid.SampledFrom([]int64{1, 500, 5000, 200_000, 1 << 30}).Draw(t, "segment"),
			Sync:         rapid.SampledFrom([]SyncPolicy{SyncNone, SyncInterval}).Draw(t, "policy"),
		}
		s, err := Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { s.Close() }()
		j, err := s.Create(testInfo("r"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { j.Close() }()
		pid := 0
		var model []spool.Event
		sizes := rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 5000), rapid.IntRange(0, 150_000))

		check := func(j *Journal, after spool.Seq, maxBytes int) {
			got, err := j.Read([]spool.Event{{Seq: 77}}, after, maxBytes)
			if err != nil {
				t.Fatal(err)
			}
			want := []spool.Event{{Seq: 77}}
			sum := 0
			for i := int(min(after, spool.Seq(len(model)))); i < len(model); i++ {
				if sum += model[i].Size(); len(want) > 1 && sum > maxBytes {
					break
				}
				want = append(want, model[i])
			}
			if d := cmp.Diff(want, got, byteSlices); d != "" {
				t.Fatalf("Read(%d, %d) (-want +got):\n%.1000s", after, maxBytes, d)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "count") {
					n := sizes.Draw(t, "size")
					seq := spool.Seq(len(model) + 1)
					e := output(seq, bytes.Repeat([]byte{byte(seq), 0xff}, n)[:n])
					if rapid.Bool().Draw(t, "data") {
						e.Data = json.RawMessage(fmt.Sprintf(`{"seq":%d}`, seq))
					}
					if err := j.Append(&e); err != nil {
						t.Fatal(err)
					}
					e.Run = "r"
					model = append(model, e)
				}
			},
			"note": func(t *rapid.T) {
				info := testInfo("r")
				pid++
				info.Pid = pid
				if err := j.Note(info); err != nil {
					t.Fatal(err)
				}
			},
			"reopen": func(t *rapid.T) {
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if s, err = Open(dir, o); err != nil {
					t.Fatal(err)
				}
				var cut Cut
				if j, cut, err = s.Recover("r"); err != nil || cut.Bytes != 0 {
					t.Fatalf("recover: %+v, %v", cut, err)
				}
			},
			"read": func(t *rapid.T) {
				after := spool.Seq(rapid.IntRange(0, len(model)+1).Draw(t, "after"))
				check(j, after, rapid.OneOf(rapid.IntRange(-1, 100), rapid.IntRange(0, 2<<20)).Draw(t, "maxBytes"))
			},
			"read elsewhere": func(t *rapid.T) {
				r, err := s.Open("r")
				if err != nil {
					t.Fatal(err)
				}
				after := spool.Seq(rapid.IntRange(0, len(model)).Draw(t, "after"))
				check(r, after, rapid.IntRange(0, 2<<20).Draw(t, "maxBytes"))
			},
			"": func(t *rapid.T) {
				info := j.Info()
				if last, sealed := j.Last(); int(last) != len(model) || info.Last != last || sealed {
					t.Fatalf("Last() = %d, %v with %d events", last, sealed, len(model))
				}
				if info.Pid != pid {
					t.Fatalf("pid %d, want %d", info.Pid, pid)
				}
			},
		})
	})
}
