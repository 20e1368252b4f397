package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

func ids(s *Store) []spool.RunID {
	var all []spool.RunID
	for info := range s.List() {
		all = append(all, info.ID)
	}
	slices.Sort(all)
	return all
}

func TestSweep(t *testing.T) {
	hour := func(h int) time.Time { return epoch.Add(time.Duration(h) * time.Hour) }
	now := hour(100)
	tests := []struct {
		name   string
		policy Retention
		keep   []spool.RunID
		want   []spool.RunID // removed, in order
	}{
		{"no bounds", Retention{}, nil, nil},
		{"age", Retention{Age: 24 * time.Hour}, nil, []spool.RunID{"a", "b"}},
		{"age exactly", Retention{Age: 90 * time.Hour}, nil, nil},
		{"age, kept", Retention{Age: 24 * time.Hour}, []spool.RunID{"a"}, []spool.RunID{"b"}},
		{"bytes", Retention{TotalBytes: 40000}, nil, []spool.RunID{"a", "b"}},
		{"bytes, kept", Retention{TotalBytes: 40000}, []spool.RunID{"a"}, []spool.RunID{"b", "c"}},
		{"bytes, all", Retention{TotalBytes: 1}, nil, []spool.RunID{"a", "b", "c", "d"}},
		{"both", Retention{Age: 80 * time.Hour, TotalBytes: 50000}, nil, []spool.RunID{"a"}},
	}
	for i := range 2 * len(tests) {
		tt, filed := tests[i/2], i%2 > 0
		t.Run(fmt.Sprintf("%s, filed %v", tt.name, filed), func(t *testing.T) {
			s := openStore(t, t.TempDir(), Options{SegmentBytes: 4000, Now: func() time.Time { return now }})
			finish(t, s, "d", hour(4), hour(98), 10000)
			finish(t, s, "a", hour(5), hour(10), 10000)
			if filed {
				file(t, s)
			}
			finish(t, s, "c", hour(1), hour(90), 10000)
			finish(t, s, "b", hour(2), hour(30), 10000)
			live := create(t, s, "live")
			appendSizes(t, live, 10000)
			all := ids(s)
			got, err := s.Sweep(tt.policy, func(id spool.RunID) bool { return slices.Contains(tt.keep, id) })
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got.Runs); d != "" {
				t.Errorf("removed (-want +got):\n%s", d)
			}
			if min := int64(len(tt.want)) * 10000; got.Bytes < min || got.Bytes > min*11/10 {
				t.Errorf("%d bytes removed", got.Bytes)
			}
			left := slices.DeleteFunc(all, func(id spool.RunID) bool { return slices.Contains(tt.want, id) })
			if d := cmp.Diff(left, ids(s)); d != "" {
				t.Errorf("left (-want +got):\n%s", d)
			}
		})
	}
}

func TestSweepBlobs(t *testing.T) {
	now := epoch
	s := openStore(t, t.TempDir(), Options{Now: func() time.Time { return now }})
	put := func(text string) spool.Digest {
		t.Helper()
		b, err := s.PutBlob("text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return b.Digest
	}
	left := func(d spool.Digest) bool {
		t.Helper()
		r, err := s.Blob(d)
		if err != nil && !errors.Is(err, spool.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil && r.Close() == nil
	}
	sweep := func(want int) {
		t.Helper()
		got, err := s.Sweep(Retention{Age: 24 * time.Hour}, nil)
		if err != nil || got.Blobs != want {
			t.Errorf("swept %d blobs, %v, want %d", got.Blobs, err, want)
		}
	}
	early, again := put("early"), put("again")
	abandoned := filepath.Join(s.blobsDir(), tempPrefix+"1")
	mustWrite(t, abandoned, nil)
	if err := os.Chtimes(abandoned, now, now); err != nil {
		t.Fatal(err)
	}
	sweep(0) // within the grace
	now = epoch.Add(2 * time.Hour)
	finish(t, s, "r", now, now, 10)
	file(t, s)
	used := put("used")
	put("again")
	sweep(1)
	if left(early) || !left(again) || !left(used) {
		t.Error("only the blob from before the run should be gone")
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("abandoned file: %v", err)
	}
	now = epoch.Add(20 * time.Hour)
	sweep(0) // the run is still there
	now = epoch.Add(30 * time.Hour)
	sweep(2)
	if left(again) || left(used) {
		t.Error("blobs outlive the last run")
	}
}

func TestBlob(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Sync: SyncAlways})
	for range 2 {
		b, err := s.PutBlob("text/plain", strings.NewReader("hello"))
		want := spool.Blob{Digest: "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", Size: 5, MIME: "text/plain"}
		if err != nil || b != want {
			t.Fatalf("PutBlob = %v, %v", b, err)
		}
		r, err := s.Blob(b.Digest)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != "hello" || r.Close() != nil {
			t.Errorf("Blob = %q, %v", got, err)
		}
	}
	if _, err := s.PutBlob("", io.MultiReader(strings.NewReader("part"), failingReader{})); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
	files := 0
	err := filepath.WalkDir(s.blobsDir(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d files, %v, want 1", files, err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBlobDigest(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	hex := strings.Repeat("0a", 32)
	tests := []struct {
		digest string
		want   error
	}{
		{"sha256:" + hex, spool.ErrNotFound},
		{"", spool.ErrInvalid},
		{hex, spool.ErrInvalid},
		{"sha256:", spool.ErrInvalid},
		{"sha512:" + hex, spool.ErrInvalid},
		{"SHA256:" + hex, spool.ErrInvalid},
		{"sha256:" + strings.ToUpper(hex), spool.ErrInvalid},
		{"sha256:" + hex[1:], spool.ErrInvalid},
		{"sha256:" + hex + "0", spool.ErrInvalid},
		{"sha256:" + hex[:62] + "/0", spool.ErrInvalid},
		{"sha256:../" + hex[3:], spool.ErrInvalid},
		{"sha256:" + hex[:63] + "\x00", spool.ErrInvalid},
		{"sha256:" + hex[:63] + "g", spool.ErrInvalid},
	}
	for _, tt := range tests {
		if _, err := s.Blob(spool.Digest(tt.digest)); !errors.Is(err, tt.want) {
			t.Errorf("Blob(%q): %v, want %v", tt.digest, err, tt.want)
		}
	}
}
