package natsobj_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/archive/natsobj"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func content(b []byte) archive.Content {
	sum := sha256.Sum256(b)
	return archive.Content{Body: io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), SHA256: hex.EncodeToString(sum[:])}
}

// TestBucket fills a bucket, reads it with the library of NATS, damages it, and restarts
// its server.
func TestBucket(t *testing.T) {
	dir := t.TempDir()
	s, err := natsd.Start(natsd.ServerOptions{Name: "store", Dir: dir, Client: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	b := natsobj.Open(natsobj.Options{Servers: s.URL(), Bucket: "logs", MaxBytes: 1 << 20, Name: "test"})
	defer b.Close()
	big := bytes.Repeat([]byte("0123456789abcdef"), 600<<10/16)
	if err := b.Create(t.Context(), "runs/a/1.seg", content(big)); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), "runs/a/1.seg", content(big[1:])); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same key again: %v", err)
	}
	wrong := content(big)
	wrong.SHA256 = strings.Repeat("0", 64)
	if err := b.Create(t.Context(), "runs/a/2.seg", wrong); err == nil {
		t.Error("bytes that did not arrive as they were sent were stored")
	}
	if err := b.Create(t.Context(), "runs/a/2.seg", content(big)); !errors.Is(err, natsobj.ErrFull) {
		t.Errorf("in a full bucket: %v", err)
	}
	if err := b.Create(t.Context(), "runs/a/empty", content(nil)); err != nil {
		t.Error(err) // there is room: nothing is left of what was refused
	}

	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store, err := js.ObjectStore(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := store.GetBytes(t.Context(), "runs/a/1.seg"); err != nil || !bytes.Equal(got, big) {
		t.Errorf("the library of NATS reads %d bytes, %v", len(got), err)
	}

	// The server comes back with its files; then a part of them is gone.
	address := strings.TrimPrefix(s.URL(), "nats://")
	s.Close()
	if s, err = natsd.Start(natsd.ServerOptions{Name: "store", Dir: dir, Client: address}); err != nil {
		t.Fatal(err)
	}
	read := func() ([]byte, error) {
		r, err := b.Open(t.Context(), "runs/a/1.seg")
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	if got, err := read(); err != nil || !bytes.Equal(got, big) {
		t.Errorf("after a restart there are %d bytes, %v", len(got), err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_logs")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("without a part of it: %v", err)
	}
	if err := b.Remove(t.Context(), "runs/a/1.seg"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stat(t.Context(), "runs/a/1.seg"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was removed: %v", err)
	}
	if err := b.Create(t.Context(), "runs/a/2.seg", content(big)); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	var keys []string
	for o, err := range b.List(t.Context(), "runs/") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	if len(keys) != 2 {
		t.Errorf("the bucket has %v", keys)
	}
}
