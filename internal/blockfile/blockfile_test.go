package blockfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
)

// write makes a file of compressed blocks.
func write(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := Write(f, bytes.NewReader(content), int64(len(content)), Options{}); err != nil {
		t.Fatal(err)
	}
	return f
}

func open(t testing.TB, f *os.File) *Reader {
	t.Helper()
	r, err := tryOpen(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryOpen(f *os.File) (*Reader, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return Open(f, fi)
}

// text returns lines that differ a little.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d internal/store/read.go: compiled in %d ms\n", i, i*7919%1000)
	}
	return b.Bytes()[:n]
}

func TestRead(t *testing.T) {
	for _, size := range []int{0, 1, BlockSize - 1, BlockSize, BlockSize + 1, 10*BlockSize + 77} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			content := text(size)
			r := open(t, write(t, content))
			if r.Size() != int64(size) {
				t.Errorf("size is %d", r.Size())
			}
			if got, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size())); err != nil || !bytes.Equal(got, content) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
			rnd := rand.New(rand.NewPCG(1, uint64(size)))
			for range 60 {
				off, n := rnd.IntN(size+10), rnd.IntN(3*BlockSize)
				p := make([]byte, n)
				got, err := r.ReadAt(p, int64(off))
				want := content[min(off, size):min(off+n, size)]
				if !bytes.Equal(p[:got], want) {
					t.Fatalf("%d bytes at %d differ", n, off)
				}
				if (got < n) != errors.Is(err, io.EOF) && n > 0 {
					t.Fatalf("%d of %d bytes at %d: %v", got, n, off, err)
				}
			}
		})
	}
}

// Files of earlier versions stay readable.
func TestEarlierVersions(t *testing.T) {
	for _, name := range []string{"first-version", "s2-blocks"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r := open(t, f)
			got, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
			if err != nil || !bytes.Equal(got, text(BlockSize+1000)) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
			if notes, err := r.AppendNotes(nil); err != nil || len(notes) > 0 {
				t.Errorf("notes %q, %v", notes, err)
			}
		})
	}
}

// Each block is compressed in the way that suits it, and the notes are kept.
func TestBlocksAndNotes(t *testing.T) {
	noise := make([]byte, BlockSize)
	rnd := rand.New(rand.NewPCG(4, 4))
	for i := range noise {
		noise[i] = byte('a' + rnd.IntN(20))
	}
	content := append(append(text(BlockSize), noise...), text(1000)...)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	notes := []byte("what is known")
	if err := Write(f, bytes.NewReader(content), int64(len(content)), Options{Notes: func() ([]byte, error) { return notes, nil }}); err != nil {
		t.Fatal(err)
	}
	r := open(t, f)
	got, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if !r.layout.lz[0] || r.layout.lz[1] {
		t.Errorf("MinLZ blocks are %v", r.layout.lz)
	}
	if got, err := r.AppendNotes([]byte("x ")); err != nil || string(got) != "x "+string(notes) {
		t.Errorf("notes %q, %v", got, err)
	}
	failed := errors.New("failed")
	if err := Write(io.Discard, bytes.NewReader(content), int64(len(content)), Options{Notes: func() ([]byte, error) { return nil, failed }}); !errors.Is(err, failed) {
		t.Errorf("error is %v", err)
	}
}

func TestReadersAtOnce(t *testing.T) {
	content := text(5 * BlockSize)
	r := open(t, write(t, content))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(w)))
			for range 50 {
				off := rnd.IntN(len(content))
				p := make([]byte, min(rnd.IntN(2*BlockSize), len(content)-off))
				if _, err := r.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, content[off:off+len(p)]) {
					t.Errorf("%d bytes at %d differ: %v", len(p), off, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTextTakesAFifth(t *testing.T) {
	content := text(1 << 20)
	fi, err := write(t, content).Stat()
	if err != nil {
		t.Fatal(err)
	}
	if fi.Size() > int64(len(content)/5) {
		t.Errorf("%d of %d bytes", fi.Size(), len(content))
	}
}

// A file that is damaged anywhere is an error or reads as something else, whose
// checksums are the caller's; it never panics or allocates much.
func TestDamage(t *testing.T) {
	content := text(BlockSize + 5)
	f := write(t, content)
	whole, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) error {
		name := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := tryOpen(f)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
		return err
	}
	for n := 0; n < len(whole); n += 1 + n/3 {
		if err := read(whole[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		b := bytes.Clone(whole)
		at := rnd.IntN(len(b))
		b[at] ^= byte(1 + rnd.IntN(255))
		if err := read(b); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
	for at := len(whole) - trailerSize - 4; at < len(whole); at++ {
		b := bytes.Clone(whole)
		b[at] ^= 1
		if err := read(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d of the end changed: %v", at, err)
		}
	}
}

func TestWriteEndsWithTheErrorOfRest(t *testing.T) {
	stop := errors.New("stop")
	blocks := 0
	err := Write(io.Discard, bytes.NewReader(text(4*BlockSize)), 4*BlockSize, Options{Rest: func() error {
		if blocks++; blocks == 2 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) || blocks != 2 {
		t.Errorf("%v after %d blocks", err, blocks)
	}
	if err := Write(io.Discard, bytes.NewReader(text(10)), 20, Options{}); !errors.Is(err, io.EOF) {
		t.Errorf("a source that is too short: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, bytes.NewReader(text(1000)), 1000, Options{}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := readLayout(bytes.NewReader(b), int64(len(b)))
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		for i := range l.ends {
			if from, to := l.frame(int64(i)); from < 0 || from > to || to > int64(len(b)) {
				t.Fatalf("block %d is at %d to %d of %d", i, from, to, len(b))
			}
		}
	})
}

// FuzzBlock decompresses what may be damaged: it is an error, or has the right size.
func FuzzBlock(f *testing.F) {
	const size = 1000
	for _, name := range []string{"first-version", "s2-blocks"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		l, err := readLayout(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			f.Fatal(err)
		}
		from, to := l.frame(1)
		f.Add(b[from:to], l.lz[1])
	}
	enc, err := newEncoder()
	if err != nil {
		f.Fatal(err)
	}
	frame, _, err := enc.encode(text(size))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame, true)
	f.Fuzz(func(t *testing.T, frame []byte, lz bool) {
		r := &Reader{layout: layout{lz: []bool{lz}}}
		if err := r.expand(0, frame, make([]byte, size)); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

func BenchmarkReadAt(b *testing.B) {
	content := text(64 << 20)
	f := write(b, content)
	for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := make([]byte, size)
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				for off := 0; off < len(content); off += size {
					if _, err := open(b, f).ReadAt(p, int64(off)); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func TestRecentBlocksAreBounded(t *testing.T) {
	var b blocks
	add := func(i int64) {
		e, added := b.claim(key{block: i})
		if added {
			b.set(e, []byte{byte(i)}, nil)
		}
		b.release(e)
	}
	for i := range int64(3 * recentBlocks) {
		add(i)
		add(0) // it is used again and again
	}
	kept := 0
	for i := range int64(3 * recentBlocks) {
		if e := b.get(key{block: i}); e != nil {
			kept++
			b.release(e)
		}
	}
	if kept != recentBlocks || b.get(key{block: 0}) == nil {
		t.Errorf("%d blocks are kept", kept)
	}
	failed := errors.New("failed")
	e, _ := b.claim(key{block: -1})
	b.set(e, nil, failed)
	b.release(e)
	if b.get(key{block: -1}) != nil {
		t.Error("a block that cannot be read is kept")
	}
}

// Readers that go on where they ended, and find what was decompressed ahead, read the
// same.
func TestReadAhead(t *testing.T) {
	content := text(40 * BlockSize)
	f := write(t, content)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(6, uint64(w)))
			p := make([]byte, 3*BlockSize)
			for off := 0; off < len(content); {
				n := min(1+rnd.IntN(len(p)), len(content)-off)
				r, err := tryOpen(f)
				if err == nil {
					_, err = r.ReadAt(p[:n], int64(off))
				}
				if err != nil || !bytes.Equal(p[:n], content[off:off+n]) {
					t.Errorf("%d bytes at %d differ: %v", n, off, err)
					return
				}
				off += n
			}
		})
	}
	wg.Wait()
	polltest.Until(t, "what reads ahead has ended", func() bool {
		jobs.mu.Lock()
		defer jobs.mu.Unlock()
		return len(jobs.files) == 0
	})
}
