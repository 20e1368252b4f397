package wasipy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/isolate"
)

// The files of a prepared directory.
const (
	codeFile    = "python.wasm"
	libraryName = "library.zip"
	imageName   = "image"
	stampName   = "stamp.json"
	lockName    = "lock"
	compiledDir = "compiled"
)

// prepared is what contexts of one directory share. Its turn is held by who
// loads or closes it.
type prepared struct {
	dir  string
	turn chan struct{}

	loaded   bool
	closed   bool
	image    *image
	library  *mapping
	libraryF *os.File
	modules  map[string]bool // names that can be imported
	pool     *pool
	local    *machine
	cell     *isolate.Cell // of workers; nil without
}

// load makes everything ready. It says how long it took to make what was not
// there, and zero if all of it was.
func (p *prepared) load(ctx context.Context, cfg Config, progress func(guest.Progress)) (time.Duration, error) {
	if p.closed {
		return 0, errClosed
	}
	if p.loaded {
		return 0, nil
	}
	began, executed := time.Now(), false
	im, err := loadImage(p.dir)
	if err != nil {
		if err := p.fill(ctx, cfg, progress); err != nil {
			return 0, err
		}
		executed = true
		if im, err = loadImage(p.dir); err != nil {
			return 0, err
		}
	}
	b, err := os.ReadFile(filepath.Join(p.dir, libraryName))
	if err == nil {
		p.libraryF, err = share("spool-python-library", b)
	}
	if err == nil {
		p.library, err = mapFile(p.libraryF)
	}
	if err == nil {
		p.modules, err = moduleNames(p.library.bytes)
	}
	if err != nil {
		_ = im.Close()
		return 0, fmt.Errorf("load the library: %w", err)
	}
	p.image = im
	if cfg.Worker != nil {
		p.pool = newPool(cfg, p)
	}
	p.loaded = true
	if !executed {
		return 0, nil
	}
	return max(time.Since(began), 1), nil
}

// loadImage loads the image of a directory that is complete.
func loadImage(dir string) (*image, error) {
	if !validStamp(dir) {
		return nil, errors.New("nothing is prepared")
	}
	b, err := os.ReadFile(filepath.Join(dir, imageName))
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	im, err := decodeImage(b)
	if err != nil {
		_ = os.Remove(filepath.Join(dir, stampName))
	}
	return im, err
}

// fill makes what is not there, in a process of its own if there can be one.
func (p *prepared) fill(ctx context.Context, cfg Config, progress func(guest.Progress)) error {
	if cfg.Worker != nil && canWork {
		return prepareOutside(ctx, cfg, p.dir, progress)
	}
	return fill(ctx, p.dir, progress)
}

// machine is the one of this process, for interpreters that live in it.
func (p *prepared) machine(ctx context.Context) (*machine, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.closed {
		return nil, errClosed
	}
	if p.local != nil {
		return p.local, nil
	}
	code, err := os.ReadFile(filepath.Join(p.dir, codeFile))
	if err != nil {
		return nil, fmt.Errorf("read the interpreter: %w", err)
	}
	m, err := newMachine(context.WithoutCancel(ctx), filepath.Join(p.dir, compiledDir), code, p.library.bytes)
	if err != nil {
		return nil, err
	}
	m.image = p.image
	p.local = m
	return m, nil
}

func (p *prepared) close() {
	p.closed = true
	if p.pool != nil {
		p.pool.close()
	}
	if p.cell != nil {
		p.cell.Close()
	}
	if p.local != nil {
		p.local.image = nil // it is ours
		p.local.close()
	}
	if p.loaded {
		_ = p.image.Close()
		p.library.close()
		_ = p.libraryF.Close()
	}
}

// check refuses packages that the interpreter does not have.
func (p *prepared) check(packages []string) error {
	for _, name := range packages {
		top, _, _ := strings.Cut(name, ".")
		if !p.modules[top] {
			return fmt.Errorf("package %q is not in the standard library", name)
		}
	}
	return nil
}

// fill fills a directory. If another process just did, it only makes sure that
// there is compiled code for this program.
func fill(ctx context.Context, dir string, progress func(guest.Progress)) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the cache directory: %w", err)
	}
	lock, err := flock.Open(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return fmt.Errorf("lock the cache: %w", err)
	}
	defer lock.Close()
	if validStamp(dir) {
		m, err := openMachine(ctx, dir)
		if err == nil {
			m.close()
		}
		return err
	}
	say := func(step string, fraction float64) {
		if progress != nil {
			progress(guest.Progress{Step: step, Fraction: fraction})
		}
	}
	say("unpack the interpreter", 0)
	code, err := unpack(codeArtefact)
	if err != nil {
		return err
	}
	library, err := unpack(libraryArtefact)
	if err != nil {
		return err
	}
	say("compile the interpreter", 0.1)
	m, err := newMachine(ctx, filepath.Join(dir, compiledDir), code, library)
	if err != nil {
		return err
	}
	defer m.close()
	say("start the interpreter", 0.8)
	if err := makeImage(ctx, m, dir); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, codeFile), code); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, libraryName), library); err != nil {
		return err
	}
	say("start the interpreter", 1)
	return writeStamp(dir)
}

// openMachine returns the machine of a directory that is complete. What the
// directory lacks of compiled code for this program is added to it.
func openMachine(ctx context.Context, dir string) (*machine, error) {
	code, err := os.ReadFile(filepath.Join(dir, codeFile))
	if err != nil {
		return nil, fmt.Errorf("read the interpreter: %w", err)
	}
	library, err := os.ReadFile(filepath.Join(dir, libraryName))
	if err != nil {
		return nil, fmt.Errorf("read the library: %w", err)
	}
	return newMachine(ctx, filepath.Join(dir, compiledDir), code, library)
}

// makeImage puts a new image into a directory. The machine has it, too.
func makeImage(ctx context.Context, m *machine, dir string) error {
	data, err := unpack(dataArtefact)
	if err != nil {
		return err
	}
	im, contents, err := takeImage(ctx, m, data)
	if err != nil {
		return err
	}
	m.image = im
	if err := im.warm(ctx, m); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, imageName), im.encode(contents))
}

// warm finds out which pages every script writes to.
func (im *image) warm(ctx context.Context, m *machine) error {
	i, err := m.instantiate(ctx, instanceOptions{memory: maxMemory, files: guest.DefaultOpenFiles})
	if err != nil {
		return err
	}
	defer i.close()
	var said strings.Builder
	i.begin(ctx, &recorder{out: &said}, m.files(vfs.NewTree(vfs.NewMemory(nil))))
	if err := i.renew(guest.BootConfig{Cwd: "/", Fresh: true}); err != nil {
		return fmt.Errorf("try the interpreter: %w", err)
	}
	res, err := i.run(guest.Script{Code: "print('ready')"})
	if err != nil || res.ExitCode != 0 || said.String() != "ready\n" {
		return fmt.Errorf("try the interpreter: it said %q and ended with %+v, %w", said.String(), res, err)
	}
	im.Hot = im.changes(i.cow.region[:im.Size])
	return nil
}

// stamp says that a directory is complete, and of which files.
type stamp struct {
	Version string               `json:"version"`
	Files   map[string]fileStamp `json:"files"`
}

type fileStamp struct {
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"`
	Inode uint64 `json:"inode"`
}

func currentStamp(dir string) (stamp, error) {
	print, err := fingerprint()
	if err != nil {
		return stamp{}, err
	}
	s := stamp{Version: Version + " " + print, Files: make(map[string]fileStamp)}
	for _, name := range []string{codeFile, libraryName, imageName} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return stamp{}, err
		}
		s.Files[name] = fileStamp{Size: info.Size(), Mtime: info.ModTime().UnixNano(), Inode: inode(info)}
	}
	return s, nil
}

func writeStamp(dir string) error {
	s, err := currentStamp(dir)
	if err != nil {
		return fmt.Errorf("stamp the cache: %w", err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("stamp the cache: %w", err)
	}
	return replaceFile(filepath.Join(dir, stampName), b)
}

// validStamp says whether a directory is complete and unchanged.
func validStamp(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, stampName))
	if err != nil {
		return false
	}
	var was stamp
	if json.Unmarshal(b, &was) != nil {
		return false
	}
	is, err := currentStamp(dir)
	if err != nil || is.Version != was.Version || len(is.Files) != len(was.Files) {
		return false
	}
	for name, f := range is.Files {
		if was.Files[name] != f {
			return false
		}
	}
	return true
}

// replaceFile writes a file so that it is there in full or not at all.
func replaceFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return fmt.Errorf("write the cache: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write the cache: %w", err)
	}
	return nil
}
