package host

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/eventlog"
)

// TestImagesOfPromptsAreBlobs checks that the log refers to the images of a prompt, that the
// session gets them, and that a log without a place for blobs holds them.
func TestImagesOfPromptsAreBlobs(t *testing.T) {
	picture := bytes.Repeat([]byte("picture"), 1000)
	data, err := json.Marshal(spool.Prompt{Text: "look", Images: []spool.PromptImage{{MIME: "image/png", Bytes: picture}}})
	if err != nil {
		t.Fatal(err)
	}
	var kept []byte
	put := func(mime string, r io.Reader) (spool.Blob, error) {
		var err error
		kept, err = io.ReadAll(r)
		return spool.Blob{Digest: "sha256:1", Size: int64(len(kept)), MIME: mime}, err
	}
	none := func(string, io.Reader) (spool.Blob, error) { return spool.Blob{}, spool.ErrUnsupported }
	for _, tt := range []struct {
		name   string
		put    func(string, io.Reader) (spool.Blob, error)
		secret bool
		want   string
	}{
		{"blobs", put, false, `{"text":"look","images":[{"mime":"image/png","blob":"sha256:1","size_bytes":7000}]}`},
		{"no blobs", none, false, string(data)},
		{"secret", put, true, ""},
	} {
		kept = nil
		log := eventlog.New(eventlog.Options{Run: "test"})
		q := newInputQueue(t.Context(), log.Append)
		q.putBlob = tt.put
		s := &lastSession{}
		q.begin(s)
		if _, err := q.put(t.Context(), spool.Input{Kind: spool.InputPrompt, Data: data, Secret: tt.secret}); err != nil {
			t.Fatal(err)
		}
		q.end()
		if !bytes.Equal(s.last.Data, data) {
			t.Errorf("%s: the session got %.100s", tt.name, s.last.Data)
		}
		events, err := log.Read(0, spool.DefaultPageBytes)
		if err != nil || len(events) != 1 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		var said spool.Said
		if err := json.Unmarshal(events[0].Data, &said); err != nil || string(said.Data) != tt.want {
			t.Errorf("%s: the log has %.200s, %v", tt.name, said.Data, err)
		}
		if wants := tt.name == "blobs"; wants != bytes.Equal(kept, picture) {
			t.Errorf("%s: a blob of %d bytes", tt.name, len(kept))
		}
	}
}

// lastSession keeps the last input.
type lastSession struct {
	engine.Session
	last spool.Input
}

func (s *lastSession) Takes(spool.Input) error { return nil }

func (s *lastSession) Send(_ context.Context, in spool.Input) error {
	s.last = in
	return nil
}
