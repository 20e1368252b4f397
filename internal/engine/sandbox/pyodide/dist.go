package pyodide

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a distribution. The first two are what makes a directory one;
// the others a distribution loads itself, and says so if it cannot.
var (
	neededFiles = []string{"pyodide.mjs", "pyodide-lock.json"}
	otherFiles  = []string{"pyodide.asm.js", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "package.json"}
)

// ErrNoDist says that a directory is no Pyodide distribution.
var ErrNoDist = errors.New("not a Pyodide distribution")

// dist is a distribution on this machine.
type dist struct {
	dir   string
	files map[string]fs.FileInfo
	lock  lockFile
}

// lockFile is what we need of a pyodide-lock.json.
type lockFile struct {
	info     lockInfo
	packages map[string]lockPackage // by normalised name
}

type lockInfo struct {
	Python string `json:"python"`
	ABI    string `json:"abi_version"`
}

type lockPackage struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	FileName string   `json:"file_name"`
	SHA256   string   `json:"sha256"`
	Depends  []string `json:"depends"`
	Imports  []string `json:"imports"`
}

// maxLock bounds the lock file.
const maxLock = 16 << 20

// findDist returns the directory of a distribution: the one that is given, or
// the first that is where npm installs such things for everybody, or where we
// look first, in the user's cache directory.
func findDist(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	var places []string
	if cache, err := os.UserCacheDir(); err == nil {
		places = append(places, filepath.Join(cache, "spool", "pyodide"))
	}
	places = append(places, "/usr/local/lib/node_modules/pyodide", "/usr/lib/node_modules/pyodide")
	for _, dir := range places {
		if _, err := os.Stat(filepath.Join(dir, neededFiles[0])); err == nil {
			return dir, nil
		}
	}
	return "", unavailable("give the directory of one, or install it with npm install -g pyodide",
		fmt.Errorf("no distribution in %s", strings.Join(places, ", ")))
}

// openDist checks that a directory is a distribution.
func openDist(dir string) (*dist, error) {
	const hint = "a distribution is the content of the npm package pyodide, or of a release of Pyodide"
	d := &dist{dir: dir, files: make(map[string]fs.FileInfo)}
	var missing []string
	for _, name := range slices.Concat(neededFiles, otherFiles) {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case err == nil && info.Mode().IsRegular():
			d.files[name] = info
		case slices.Contains(neededFiles, name):
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, unavailable(hint, fmt.Errorf("%w: %s has no %s", ErrNoDist, dir, strings.Join(missing, " and no ")))
	}
	if d.files["pyodide-lock.json"].Size() > maxLock {
		return nil, unavailable(hint, fmt.Errorf("%w: its pyodide-lock.json is too large", ErrNoDist))
	}
	b, err := os.ReadFile(filepath.Join(dir, "pyodide-lock.json"))
	if err != nil {
		return nil, fmt.Errorf("read lock file: %w", err)
	}
	if d.lock, err = parseLock(b); err != nil {
		return nil, unavailable(hint, fmt.Errorf("%w: %w", ErrNoDist, err))
	}
	return d, nil
}

func parseLock(b []byte) (lockFile, error) {
	var raw struct {
		Info     lockInfo        `json:"info"`
		Packages json.RawMessage `json:"packages"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return lockFile{}, fmt.Errorf("decode pyodide-lock.json: %w", err)
	}
	l := lockFile{info: raw.Info, packages: make(map[string]lockPackage)}
	var byName map[string]lockPackage
	if err := json.Unmarshal(raw.Packages, &byName); err != nil {
		var none []struct{} // a replacement may say that it has no packages so
		if len(raw.Packages) > 0 && (json.Unmarshal(raw.Packages, &none) != nil || len(none) > 0) {
			return lockFile{}, fmt.Errorf("decode pyodide-lock.json: %w", err)
		}
	}
	for name, p := range byName {
		if p.Name == "" {
			p.Name = name
		}
		l.packages[normalise(name)] = p
	}
	return l, nil
}

// normalise makes names of packages comparable, as PEP 503 says.
func normalise(name string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(name) {
		if r == '-' || r == '_' || r == '.' {
			dash = true
			continue
		}
		if dash {
			b.WriteByte('-')
			dash = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// fingerprintVersion is part of every fingerprint. Change it with what
// prepared things mean.
const fingerprintVersion = 1

// fingerprint names what a distribution, Node and our own part are now. Any
// change to a file, also in place, changes it.
func (d *dist) fingerprint(node string) (string, error) {
	h := sha256.New()
	runner := sha256.Sum256(runnerSource)
	fmt.Fprintf(h, "%d %x %s\n", fingerprintVersion, runner, d.dir)
	for _, name := range slices.Concat(neededFiles, otherFiles) {
		if info := d.files[name]; info != nil {
			fmt.Fprintf(h, "%s %d %d %d\n", name, info.Size(), info.ModTime().UnixNano(), inode(info))
		}
	}
	info, err := os.Stat(node)
	if err != nil {
		return "", fmt.Errorf("look at Node: %w", err)
	}
	fmt.Fprintf(h, "%s %d %d %d\n", node, info.Size(), info.ModTime().UnixNano(), inode(info))
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
