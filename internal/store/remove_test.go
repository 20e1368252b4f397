package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/runfile"
)

// withBlobs creates a run of a kernel whose events refer to blobs.
func withBlobs(t *testing.T, s *Store, id spool.RunID, sealed bool, contents ...string) []spool.Digest {
	t.Helper()
	info := testInfo(id)
	info.Engine = "kernel"
	j, err := s.Create(info)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	var digests []spool.Digest
	for i, content := range contents {
		blob, err := s.PutBlob("text/plain", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, blob.Digest)
		appendAll(t, j, output(spool.Seq(2*i+1), []byte("before")), spool.Event{
			Seq: spool.Seq(2*i + 2), Time: epoch, Kind: "display", Data: fmt.Appendf(nil, `{"text/plain":{"blob":"%s"}}`, blob.Digest),
		})
	}
	if sealed {
		info.State, info.Ended = spool.StateClosed, epoch
		if err := j.Seal(info); err != nil {
			t.Fatal(err)
		}
	}
	return digests
}

func TestRemoveComplete(t *testing.T) {
	now := epoch
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 100, Now: func() time.Time { return now }})
	one := withBlobs(t, s, "one", true, "only one", "both", "live too")
	withBlobs(t, s, "two", true, "both")
	withBlobs(t, s, "live", false, "live too")
	now = now.Add(time.Minute)

	for _, tt := range []struct {
		ids  []spool.RunID
		want error
	}{
		{[]spool.RunID{"one", "live"}, ErrIncomplete},
		{[]spool.RunID{"one", "none"}, fs.ErrNotExist},
	} {
		if _, err := s.RemoveComplete(tt.ids, false); !errors.Is(err, tt.want) {
			t.Errorf("remove %v: %v, want %v", tt.ids, err, tt.want)
		}
	}
	before, err := s.Storage("")
	if err != nil {
		t.Fatal(err)
	}
	want := spool.Storage{LiveRuns: 1, LiveBytes: before.LiveBytes, FinishedRuns: 2, FinishedBytes: before.FinishedBytes, FinishedRawBytes: before.FinishedBytes, Blobs: 3, BlobBytes: 20}
	if d := cmp.Diff(want, before); d != "" {
		t.Error(d)
	}
	dry, err := s.RemoveComplete([]spool.RunID{"one"}, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.RemoveComplete([]spool.RunID{"one"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(dry, got); d != "" || got.Blobs != 1 {
		t.Errorf("removed %+v, want one blob, as without deleting: %s", got, d)
	}
	for i, gone := range []bool{true, false, false} {
		r, err := s.Blob(one[i])
		if errors.Is(err, spool.ErrNotFound) != gone {
			t.Errorf("blob %d: %v", i, err)
		}
		if err == nil {
			r.Close()
		}
	}
	after, err := s.Storage("")
	if err != nil {
		t.Fatal(err)
	}
	if freed := before.FinishedBytes + before.BlobBytes - after.FinishedBytes - after.BlobBytes; freed != got.Bytes {
		t.Errorf("%d bytes were freed, and %d reported", freed, got.Bytes)
	}
	// Both of the runs that share a blob.
	if got, err = s.RemoveComplete([]spool.RunID{"two"}, false); err != nil || got.Blobs != 1 {
		t.Errorf("removed %+v, %v", got, err)
	}
}

// A blob that a live run has just stored stays, even if the event that refers to
// it is not logged yet.
func TestRemoveKeepsFreshBlobs(t *testing.T) {
	now := epoch
	s := openStore(t, t.TempDir(), Options{Now: func() time.Time { return now }})
	d := withBlobs(t, s, "one", true, "content")
	withBlobs(t, s, "live", false)
	if got, err := s.RemoveComplete([]spool.RunID{"one"}, false); err != nil || got.Blobs != 0 {
		t.Errorf("removed %+v, %v", got, err)
	}
	r, err := s.Blob(d[0])
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	// One that was stored again between the decision and the removal.
	if gone, err := s.removeBlob(d[0], now.Add(-time.Hour)); gone || err != nil {
		t.Errorf("a blob that was stored again: %v, %v", gone, err)
	}
	if r, err = s.Blob(d[0]); err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// Readers of a log of many segments see all of it or exactly one gap, up to the
// end, whenever the run is removed.
func TestRemoveUnderReaders(t *testing.T) {
	const events = 40
	for round := range 20 {
		s := openStore(t, t.TempDir(), Options{SegmentBytes: 1})
		j := create(t, s, "r")
		sizes := slices.Repeat([]int{10}, events)
		appendSizes(t, j, sizes...)
		if err := j.Seal(testInfo("r")); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range 4 {
			r, err := s.Open("r")
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				gaps, after := 0, spool.Seq(0)
				for after < events {
					page, err := r.Read(nil, after, 1)
					if err != nil || len(page) == 0 {
						t.Errorf("after %d: %d events, %v", after, len(page), err)
						return
					}
					for _, e := range page {
						if e.Kind == spool.KindTruncated {
							var gap spool.Truncation
							if err := json.Unmarshal(e.Data, &gap); err != nil || gap.From != after+1 || gap.To != events {
								t.Errorf("gap %+v after %d, %v", gap, after, err)
							}
							gaps++
						}
						after = e.Seq
					}
					if after == spool.Seq(1+round) {
						begun <- struct{}{}
					}
				}
				if gaps > 1 {
					t.Errorf("%d gaps", gaps)
				}
			})
		}
		<-begun
		if _, err := s.RemoveComplete([]spool.RunID{"r"}, false); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if left, _ := filepath.Glob(filepath.Join(s.runsDir(), "*")); len(left) > 0 {
			t.Errorf("files are left: %v", left)
		}
	}
}

// A removal that was interrupted leaves no run, and the next sweep ends it.
func TestInterruptedRemoval(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1})
	j := create(t, s, "r")
	appendSizes(t, j, 1, 1, 1)
	if err := j.Seal(testInfo("r")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(segmentFiles(t, s, "r")[0]), s.hide("r")); err != nil {
		t.Fatal(err)
	}
	if got := ids(s); len(got) > 0 {
		t.Errorf("listed: %v", got)
	}
	if _, err := s.Open("r"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	s.now = func() time.Time { return time.Now().Add(2 * blobGrace) }
	if _, err := s.Sweep(Retention{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.runsDir(), "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// An archive of a log with several segments and a gap comes back the same, ages
// from its import, and gets another id if its own is taken.
func TestImport(t *testing.T) {
	now := epoch
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 100, Now: func() time.Time { return now }})
	file := testArchive(t)
	var infos []spool.Info
	for range 2 {
		info, err := s.Import(bytes.NewReader(file), func() spool.RunID { return "another" })
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if infos[0].ID != "r" || infos[1].ID != "another" || infos[0].State != spool.StateClosed || infos[0].Last != 9 {
		t.Errorf("imported %+v", infos)
	}
	if d := cmp.Diff(map[string]string{"a": "b", LabelImported: epoch.Format(time.RFC3339)}, infos[0].Labels); d != "" {
		t.Error(d)
	}
	for _, info := range infos {
		j, err := s.Open(info.ID)
		if err != nil {
			t.Fatal(err)
		}
		var seqs []spool.Seq
		for _, e := range readAll(t, j, 1) {
			seqs = append(seqs, e.Seq)
		}
		if d := cmp.Diff([]spool.Seq{1, 2, 3, 4, 7, 8, 9}, seqs); d != "" {
			t.Error(d)
		}
	}
	if _, err := s.Import(bytes.NewReader(file[:len(file)-1]), func() spool.RunID { return "third" }); !errors.Is(err, runfile.ErrDamaged) {
		t.Errorf("import a damaged file: %v", err)
	}
	now = now.Add(12 * time.Hour)
	if swept, err := s.Sweep(Retention{Age: 24 * time.Hour}, nil, nil); err != nil || len(swept.Runs) > 0 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	now = now.Add(24 * time.Hour)
	if swept, err := s.Sweep(Retention{Age: 24 * time.Hour}, nil, nil); err != nil || len(swept.Runs) != 2 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, importPrefix+"*")); len(left) > 0 {
		t.Errorf("directories are left: %v", left)
	}
}

// testArchive returns an archive of a run with a gap, which ended long ago.
func testArchive(t *testing.T) []byte {
	t.Helper()
	events := []spool.Event{}
	for seq := spool.Seq(1); seq <= 4; seq++ {
		events = append(events, output(seq, bytes.Repeat([]byte{byte(seq)}, 60)))
	}
	events = append(events,
		spool.Event{Seq: 7, Time: epoch, Kind: spool.KindTruncated, Data: json.RawMessage(`{"from":5,"to":7}`)},
		output(8, []byte("end")), spool.Event{Seq: 9, Time: epoch, Kind: spool.KindClosed})
	info := testInfo("r")
	info.Labels = map[string]string{"a": "b", "spool.access.subject": "alice", "exec-server.session": "x", LabelImported: "never"}
	info.State, info.Last, info.Ended = spool.StateClosed, 9, epoch.Add(-1000*time.Hour)
	var out bytes.Buffer
	if err := runfile.Write(t.Context(), &out, spool.Attach(&archived{info: info, events: events}, "r"), "test"); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// archived is a backend with one finished run; an archive needs no more.
type archived struct {
	spool.Backend
	info   spool.Info
	events []spool.Event
}

func (b *archived) Stat(context.Context, spool.RunID) (spool.Info, error) { return b.info, nil }

func (b *archived) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	for i, e := range b.events {
		if e.Seq > q.After {
			return spool.Page{Events: b.events[i : i+1], Next: e.Seq, Info: b.info}, nil
		}
	}
	return spool.Page{Next: q.After, Info: b.info}, nil
}
