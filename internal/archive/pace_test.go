package archive

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
)

// Bytes go at the rate of the limit, however many take them, and a pause gives no credit.
func TestUploadRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{rate: DefaultRate}
		take := func(n int) {
			t.Helper()
			if err := p.take(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for range 8 {
			take(DefaultRate / 2)
		}
		take(1)
		if got := time.Since(began); got != 4*time.Second {
			t.Errorf("4 times the bytes of a second took %v", got)
		}
		time.Sleep(time.Hour)
		began = time.Now()
		for range 3 {
			take(DefaultRate)
		}
		if got := time.Since(began); got != 2*time.Second {
			t.Errorf("after a pause the third second began after %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if p.take(ctx, 1) == nil {
			t.Error("it waits after the end of the context")
		}
	})
}

// A loop that rests takes half of a processor at most.
func TestShippingRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rest := resting(t.Context())
		began := time.Now()
		time.Sleep(30 * time.Millisecond) // the work
		rest()
		if got := time.Since(began); got != 60*time.Millisecond {
			t.Errorf("30ms of work took %v", got)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		rest()
		if got := time.Since(began); got != longestRest {
			t.Errorf("it rested %v", got)
		}
	})
}

// A manifest is only believed as it was written, and for its own run.
func TestManifestsAreChecked(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	good := &Manifest{Run: "a", Info: spool.Info{ID: "a"}, Segments: []Segment{{First: 1, SHA256: sum, RawSHA256: sum}}, Blobs: []Blob{{Digest: spool.Digest("sha256:" + sum)}}}
	encode := func(change func(*Manifest)) []byte {
		t.Helper()
		m := *good
		m.Segments, m.Blobs = slices.Clone(good.Segments), slices.Clone(good.Blobs)
		change(&m)
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	whole := encode(func(*Manifest) {})
	if _, err := decodeManifest(whole, "a"); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"another run":      encode(func(m *Manifest) { m.Run = "b" }),
		"no segments":      encode(func(m *Manifest) { m.Segments = nil }),
		"seq 0":            encode(func(m *Manifest) { m.Segments[0].First = 0 }),
		"a path":           encode(func(m *Manifest) { m.Segments[0].SHA256 = "../../x" }),
		"a path of a blob": encode(func(m *Manifest) { m.Blobs[0].Digest = "sha256:../x" }),
		"an empty digest":  encode(func(m *Manifest) { m.Blobs[0].Digest = "" }),
		"a changed byte":   bytes.Replace(whole, []byte(`"first":1`), []byte(`"first":2`), 1),
		"a cut":            whole[:len(whole)-1],
		"too long":         append(bytes.Repeat([]byte(" "), maxManifest), whole...),
	} {
		if _, err := decodeManifest(b, "a"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decodeManifest([]byte(`{"version":2}`), "a"); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("a later version: %v", err)
	}
}
