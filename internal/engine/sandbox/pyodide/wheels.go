package pyodide

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxWheel bounds one file of a package.
const maxWheel = 512 << 20

// ErrWheel says that the file of a package is not the one that the lock file
// names.
var ErrWheel = errors.New("does not have the SHA-256 of the lock file")

// resolve returns the packages of those names and all that they depend on, in
// the order of the alphabet.
func (l lockFile) resolve(names []string) ([]lockPackage, error) {
	found := make(map[string]lockPackage)
	var visit func(name, because string) error
	visit = func(name, because string) error {
		key := normalise(name)
		if _, ok := found[key]; ok {
			return nil
		}
		p, ok := l.packages[key]
		if !ok {
			return unavailable("", fmt.Errorf("package %s%s is not in the distribution's lock file", name, because))
		}
		found[key] = p
		for _, d := range p.Depends {
			if err := visit(d, ", which "+name+" needs,"); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range names {
		if err := visit(n, ""); err != nil {
			return nil, err
		}
	}
	var list []lockPackage
	for _, p := range found {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b lockPackage) int { return strings.Compare(a.FileName, b.FileName) })
	return list, nil
}

// stage puts the files of packages, each checked, into a directory of its own
// below cache. They are copies: later
// changes to the originals have no effect. It uses no network.
func stage(cache string, packages []lockPackage, sources []string) (dir string, err error) {
	h := sha256.New()
	for _, p := range packages {
		fmt.Fprintf(h, "%s %s\n", p.SHA256, p.FileName)
	}
	dir = filepath.Join(cache, "packages-"+hex.EncodeToString(h.Sum(nil)[:12]))
	if staged(dir, packages) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("stage packages: %w", err)
	}
	tmp, err := os.MkdirTemp(cache, "packages-*.tmp")
	if err != nil {
		return "", fmt.Errorf("stage packages: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", fmt.Errorf("stage packages: %w", err)
	}
	for _, p := range packages {
		if err := copyWheel(tmp, p, sources); err != nil {
			return "", err
		}
	}
	if err := os.RemoveAll(dir); err != nil { // it was not what it should be
		return "", fmt.Errorf("stage packages: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil && staged(dir, packages) != nil { // unless another was faster
		return "", fmt.Errorf("stage packages: %w", err)
	}
	return dir, nil
}

// staged says whether a directory holds exactly what it should.
func staged(dir string, packages []lockPackage) error {
	for _, p := range packages {
		f, err := os.Open(filepath.Join(dir, p.FileName))
		if err != nil {
			return err
		}
		err = check(p, f, io.Discard)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func copyWheel(dir string, p lockPackage, sources []string) error {
	if p.FileName != filepath.Base(p.FileName) || p.FileName == "" || p.FileName == "." || p.FileName == ".." {
		return unavailable("", fmt.Errorf("package %s: the lock file names no plain file: %q", p.Name, p.FileName))
	}
	for _, source := range sources {
		in, err := os.Open(filepath.Join(source, p.FileName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("package %s: %w", p.Name, err)
		}
		defer in.Close()
		out, err := os.OpenFile(filepath.Join(dir, p.FileName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("package %s: %w", p.Name, err)
		}
		err = check(p, in, out)
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		return err
	}
	return unavailable("put the file into the distribution or a directory of wheels; nothing is ever downloaded",
		fmt.Errorf("package %s: no %s in %s", p.Name, p.FileName, strings.Join(sources, ", ")))
}

// check copies a file of a package and compares its sum.
func check(p lockPackage, in io.Reader, out io.Writer) error {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), io.LimitReader(in, maxWheel+1))
	if err != nil {
		return fmt.Errorf("package %s: %w", p.Name, err)
	}
	if n > maxWheel {
		return unavailable("", fmt.Errorf("package %s: %s is larger than %d bytes", p.Name, p.FileName, maxWheel))
	}
	want, err := hex.DecodeString(p.SHA256)
	if err != nil || subtle.ConstantTimeCompare(want, h.Sum(nil)) != 1 {
		return unavailable("", fmt.Errorf("package %s: %s %w", p.Name, p.FileName, ErrWheel))
	}
	return nil
}
