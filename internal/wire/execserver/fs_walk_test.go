package execserver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// walkText performs a walk and returns its answer in short form: names relative
// to the directory, directories with a slash, errors with an exclamation mark.
func (t *fileTest) walkText(path, options string) string {
	t.Helper()
	answer := t.call("fs/walk", `{"path":"`+path+`","options":`+options+`}`)
	var r walkResult
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		return answer
	}
	var words []string
	short := func(uri string) string { return strings.TrimPrefix(uri, fileuri.Format(t.dir)+"/") }
	for _, e := range r.Entries {
		word := short(e.Path)
		if e.Kind == "directory" {
			word += "/"
		}
		words = append(words, word)
	}
	for _, e := range r.Errors {
		words = append(words, "!"+short(e.Path)+": "+e.Message)
	}
	if r.Truncated {
		words = append(words, "...")
	}
	return strings.Join(words, " ")
}

func walkJSON(depth, directories, entries int, follow bool) string {
	return fmt.Sprintf(`{"maxDepth":%d,"maxDirectories":%d,"maxEntries":%d,"followDirectorySymlinks":%t}`, depth, directories, entries, follow)
}

func TestWalk(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	ft.mkdir(".hid")
	ft.write(".hid/x", "")
	ft.mkdir("zz")
	ft.link(".", "zz/self")
	ft.write("bad\xff", "")
	ft.write("nl\nx", "")
	const limits = "-32600 filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000"
	const top, bad = ".hid/ f nl%0Ax sub/ zz/", " !bad%EF%BF%BD: No such file or directory (os error 2)"
	for _, tt := range []struct{ name, path, options, want string }{
		{"breadth first, sorted, links and pipes left out", "$D", walkJSON(6, 2000, 2000, false),
			top + " .hid/x sub/deep/ sub/s" + bad},
		{"each real directory entered once", "$D", walkJSON(6, 2000, 2000, true),
			".hid/ f ld/ nl%0Ax sub/ zz/ .hid/x ld/deep/ ld/s zz/self/" + bad},
		{"hidden directories listed, not entered", "$D",
			`{"maxDepth":6,"maxDirectories":9,"maxEntries":99,"followDirectorySymlinks":false,"pruneHiddenDirectories":true}`,
			top + " sub/deep/ sub/s" + bad},
		{"root is a link", "$D/ld", walkJSON(6, 9, 99, false), ""},
		{"root is a link that is followed", "$D/ld", walkJSON(6, 9, 99, true), "ld/deep/ ld/s"},
		{"root is a file", "$D/f", walkJSON(6, 9, 99, true), ""},
		{"root is missing", "$D/nope", walkJSON(6, 9, 99, true), enoent},
		{"root is a link to nowhere", "$D/dang", walkJSON(6, 9, 99, true), enoent},
		{"depth is no truncation", "$D", walkJSON(0, 9, 99, false), top + bad},
		{"depth one", "$D", walkJSON(1, 9, 99, false), top + " .hid/x sub/deep/ sub/s" + bad},
		{"examined names are counted", "$D", walkJSON(1, 9, 3, false), ".hid/" + bad + " ..."},
		{"exactly enough entries", "$D/sub", walkJSON(1, 9, 2, false), "sub/deep/ sub/s"},
		{"one directory", "$D", walkJSON(1, 1, 99, false), top + bad + " ..."},
		{"two directories", "$D", walkJSON(1, 2, 99, false), top + " .hid/x" + bad + " ..."},
		{"no directories", "$D", walkJSON(1, 0, 99, false), "-32600 filesystem walk limits must be greater than zero"},
		{"no entries", "$D", walkJSON(1, 1, 0, false), "-32600 filesystem walk limits must be greater than zero"},
		{"too deep", "$D", walkJSON(65, 1, 1, false), limits},
		{"too many directories", "$D", walkJSON(1, 10001, 1, false), limits},
		{"too many entries", "$D", walkJSON(1, 1, 50001, false), limits},
		{"missing option", "$D", `{"maxDepth":6}`, "-32602 missing field `maxDirectories`"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ft.walkText(tt.path, tt.options); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
	ft.want("fs/walk", `{"path":"$D"}`, "-32602 missing field `options`")
}

func TestWalkAnswerIsBounded(t *testing.T) {
	ft := newFileTest(t)
	// Nested directories make every path long.
	dir := ft.dir
	for range 15 {
		dir = filepath.Join(dir, strings.Repeat("d", 200))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	answer := ft.call("fs/walk", `{"path":"$D","options":`+walkJSON(64, 100, 50000, false)+`}`)
	if len(answer) > maxWalkResponse+100 || !strings.HasSuffix(answer, `"truncated":true}`) {
		t.Errorf("%d bytes, ending in %s", len(answer), answer[len(answer)-40:])
	}
}

func TestSortedNamesKeepsTheFirst(t *testing.T) {
	dir := t.TempDir()
	for i := range 5000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d", 4999-i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names, err := (&walker{tree: host{}}).sortedNames(walkDirectory{path: dir}, 3)
	if err != nil || strings.Join(names, " ") != "00000 00001 00002" {
		t.Errorf("%q, %v", names, err)
	}
}
