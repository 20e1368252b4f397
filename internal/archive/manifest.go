package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spool-run/spool"
)

// maxManifest is the largest manifest in bytes. A run with very many blobs has a long
// one.
const maxManifest = 64 << 20

// manifestVersion is the version of manifests that this package writes. A reader skips
// fields that it does not know, and refuses later versions.
const manifestVersion = 1

// Manifest is what the archive has of a run.
type Manifest struct {
	Run      spool.RunID `json:"run"`
	Node     string      `json:"node"`            // the machine where it ran
	Epoch    uint64      `json:"epoch,omitempty"` // of that machine in its cluster
	Archived time.Time   `json:"archived"`        // by the clock of that machine
	Info     spool.Info  `json:"info"`
	Segments []Segment   `json:"segments"`
	Blobs    []Blob      `json:"blobs,omitempty"`
}

// Segment is a segment of a log. It is stored as its file was: compressed or not.
type Segment struct {
	First     spool.Seq `json:"first"`
	Last      spool.Seq `json:"last"`
	Size      int64     `json:"size_bytes"`
	SHA256    string    `json:"sha256"` // of the file, in hex
	RawSize   int64     `json:"raw_size_bytes"`
	RawSHA256 string    `json:"raw_sha256"` // of the segment before compression
}

// Blob is a large value to which an event of the run refers.
type Blob struct {
	Digest spool.Digest `json:"blob"`
	Size   int64        `json:"size_bytes"`
}

// envelope is a manifest as it is stored, with the checksum of its bytes.
type envelope struct {
	Version  int             `json:"version"`
	SHA256   string          `json:"sha256"`
	Manifest json.RawMessage `json:"manifest"`
}

// file is an object with its checksum.
type file struct {
	key    string
	size   int64
	sha256 string
}

// files returns the objects of a run beside its manifest.
func (m *Manifest) files() []file {
	var all []file
	for i := range m.Segments {
		s := &m.Segments[i]
		all = append(all, file{segmentKey(m.Run, s), s.Size, s.SHA256})
	}
	for _, b := range m.Blobs {
		all = append(all, b.file(m.Run))
	}
	return all
}

func (b Blob) file(id spool.RunID) file {
	return file{blobKey(id, b.Digest), b.Size, string(b.Digest[len("sha256:"):])}
}

// Bytes returns the size of all objects of a run beside its manifest.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.files() {
		n += f.size
	}
	return n
}

// same reports whether two manifests have the same log. One may have it compressed.
func (m *Manifest) same(o *Manifest) bool {
	return slices.EqualFunc(m.Segments, o.Segments, func(a, b Segment) bool {
		return a.First == b.First && a.RawSHA256 == b.RawSHA256
	})
}

// encode returns the bytes of a manifest.
func (m *Manifest) encode() ([]byte, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return json.Marshal(envelope{manifestVersion, hex.EncodeToString(sum[:]), raw})
}

// decodeManifest reads the manifest of a run.
func decodeManifest(b []byte, id spool.RunID) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("%w: its manifest has more than %d bytes", ErrDamaged, maxManifest)
	}
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("%w: its manifest does not decode: %w", ErrDamaged, err)
	}
	if e.Version > manifestVersion {
		return nil, fmt.Errorf("%w: its manifest has the version %d; a later version of Spool wrote it", spool.ErrUnsupported, e.Version)
	}
	raw := bytes.TrimSpace(e.Manifest)
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != e.SHA256 {
		return nil, fmt.Errorf("%w: its manifest has another checksum than it says", ErrDamaged)
	}
	m := new(Manifest)
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: its manifest does not decode: %w", ErrDamaged, err)
	}
	if err := m.check(id); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return m, nil
}

// check reports what a manifest cannot say.
func (m *Manifest) check(id spool.RunID) error {
	if m.Run != id || m.Info.ID != id || len(m.Segments) == 0 {
		return fmt.Errorf("the manifest is that of run %.140s, with %d segments", m.Run, len(m.Segments))
	}
	for _, s := range m.Segments {
		if s.First == 0 || s.Size < 0 || !isSum(s.SHA256) || !isSum(s.RawSHA256) {
			return fmt.Errorf("segment %d makes no sense", s.First)
		}
	}
	for _, b := range m.Blobs {
		if len(b.Digest) <= len("sha256:") || !isSum(string(b.Digest[len("sha256:"):])) || b.Size < 0 {
			return fmt.Errorf("the digest %.100q of a blob is none", b.Digest)
		}
	}
	return nil
}

// isSum reports whether a text is a SHA-256 in hex, which may be part of a path.
func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == s
}
