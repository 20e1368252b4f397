package pyodide

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// A package's file is used only if it is the one that the lock file names.
func TestPackagesAreCheckedAgainstTheLockFile(t *testing.T) {
	dist, wheels, cache := t.TempDir(), t.TempDir(), t.TempDir()
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	lock, err := parseLock([]byte(`{"packages":{
		"a":{"name":"A_b","file_name":"a.whl","sha256":"` + sum("a") + `","depends":["C.d"]},
		"c-d":{"name":"c-d","file_name":"c.whl","sha256":"` + sum("c") + `","depends":["a"]},
		"evil":{"name":"evil","file_name":"../../evil.whl","sha256":"` + sum("x") + `"},
		"gone":{"name":"gone","file_name":"gone.whl","sha256":"` + sum("x") + `"},
		"odd":{"name":"odd","file_name":"odd.whl","sha256":"zz"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir, name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(dist, "a.whl", "a")
	write(wheels, "c.whl", "c")
	write(wheels, "odd.whl", "x")
	list, err := lock.resolve([]string{"A"})
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	dir, err := stage(cache, list, []string{wheels, dist})
	if err != nil {
		t.Fatal(err)
	}
	write(dist, "a.whl", "changed later")
	for name, want := range map[string]string{"a.whl": "a", "c.whl": "c"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
	if again, err := stage(cache, list, []string{wheels, dist}); err != nil || again != dir {
		t.Errorf("the second time: %q, %v", again, err)
	}
	// The cache was changed: it is made again, and what is wrong then
	// is an error.
	write(dir, "c.whl", "poisoned")
	if _, err := stage(cache, list, []string{wheels, dist}); !errors.Is(err, ErrWheel) {
		t.Errorf("with a changed file: %v", err)
	}
	write(dist, "a.whl", "a")
	if dir, err = stage(cache, list, []string{wheels, dist}); err != nil {
		t.Errorf("after that: %v", err)
	} else if b, _ := os.ReadFile(filepath.Join(dir, "c.whl")); string(b) != "c" {
		t.Errorf("the cache still holds %q", b)
	}
	for name, want := range map[string]string{
		"none": "not in the distribution's lock file", "evil": "no plain file", "gone": "no gone.whl in", "odd": "SHA-256",
	} {
		list, err := lock.resolve([]string{name})
		if err == nil {
			_, err = stage(cache, list, []string{wheels, dist})
		}
		var unavailable *guest.UnavailableError
		if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLockFiles(t *testing.T) {
	for text, ok := range map[string]bool{
		`{}`: true, `{"packages":{}}`: true, `{"packages":[]}`: true,
		`{"packages":[{}]}`: false, `{"packages":3}`: false, `nonsense`: false,
	} {
		if _, err := parseLock([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	for in, want := range map[string]string{"Foo__Bar.baz": "foo-bar-baz", "numpy": "numpy", "-x": "-x"} {
		if got := normalise(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A file of a package has at most maxWheel bytes.
func TestWheelsAreBounded(t *testing.T) {
	p := lockPackage{Name: "large", FileName: "large.whl"}
	if err := check(p, io.LimitReader(zeros{}, maxWheel), io.Discard); !errors.Is(err, ErrWheel) { // it is read to its end
		t.Errorf("a file of %d bytes: %v", maxWheel, err)
	}
	if err := check(p, zeros{}, io.Discard); err == nil || !strings.Contains(err.Error(), "large.whl is larger than 536870912 bytes") {
		t.Errorf("a larger file: %v", err)
	}
}
