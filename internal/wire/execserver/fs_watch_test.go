package execserver

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	watching    = `{"watching":true}`
	notWatching = `{"watching":false}`
)

// note waits for the notification of a watch and checks that it is the only
// one.
func (t *fileTest) note(id int) {
	t.Helper()
	want := fmt.Sprintf(`fs/missingChanged {"watchId":%d}`, id)
	if got := <-t.notes; got != want {
		t.Errorf("notified %s, want %s", got, want)
	}
}

// quiet checks that there was no notification once the watch is over.
func (t *fileTest) quiet() {
	t.Helper()
	t.files.close()
	select {
	case got := <-t.notes:
		t.Errorf("notified %s", got)
	default:
	}
}

func needInotify(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs inotify")
	}
}

func TestWatchMissingReports(t *testing.T) {
	needInotify(t)
	for _, tt := range []struct {
		name    string
		missing string
		present string
		change  func(t *fileTest)
	}{
		{"the file appears", `"$D/m"`, `null`, func(t *fileTest) { t.write("m", "") }},
		{"a parent directory appears", `"$D/a/b/c"`, `null`, func(t *fileTest) { t.mkdir("a") }},
		{"one of many appears", `"$D/x","$D/sub/q"`, `null`, func(t *fileTest) { t.write("sub/q", "") }},
		{"a link appears", `"$D/m"`, `null`, func(t *fileTest) { t.link("nowhere", "m") }},
		{"a file is renamed to the path", `"$D/m"`, `null`, func(t *fileTest) {
			if err := os.Rename(filepath.Join(t.dir, "f"), filepath.Join(t.dir, "m")); err != nil {
				t.Fatal(err)
			}
		}},
		{"the parent directory is removed", `"$D/sub/deep/q"`, `null`, func(t *fileTest) { t.remove("sub") }},
		{"the parent directory is replaced", `"$D/sub/deep/q"`, `null`, func(t *fileTest) {
			if err := os.Rename(filepath.Join(t.dir, "sub"), filepath.Join(t.dir, "other")); err != nil {
				t.Fatal(err)
			}
		}},
		{"the present file changes", `"$D/m"`, `"$D/f"`, func(t *fileTest) { t.write("f", "changed") }},
		{"the present file is removed", `"$D/m"`, `"$D/f"`, func(t *fileTest) { t.remove("f") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ft := newFileTest(t)
			ft.populate()
			ft.want("fs/watchMissing", `{"watchId":7,"missing":[`+tt.missing+`],"present":`+tt.present+`}`, watching)
			tt.change(ft)
			ft.note(7)
			ft.write("m", "again")
			ft.quiet()
		})
	}
}

func TestWatchMissingRefuses(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	many := strings.Repeat(`"$D/m",`, maxMissing) + `"$D/m"`
	for i, tt := range []struct{ missing, present, want string }{
		{``, `null`, notWatching},
		{``, `"$D/f"`, notWatching},
		{`"$D/f"`, `null`, notWatching},
		{`"$D/dang"`, `null`, notWatching},
		{`"$D/f/x"`, `null`, notWatching},
		{`"$D/ld/x"`, `null`, notWatching},
		{`"$D/m"`, `"$D/nope"`, notWatching},
		{`"$D/m"`, `"$D/lf"`, notWatching},
		{many, `null`, notWatching},
		{`"file:///"`, `null`, notWatching},
		{`"file://other/p"`, `null`, notWatching},
		{`"$D/m"`, `"file://other/p"`, notWatching},
		{`"/m"`, `null`, "-32602 invalid URI: relative URL without a base"},
	} {
		ft.want("fs/watchMissing", fmt.Sprintf(`{"watchId":%d,"missing":[%s],"present":%s}`, i, tt.missing, tt.present), tt.want)
	}
	ft.want("fs/watchMissing", `{"missing":["$D/m"]}`, "-32602 missing field `watchId`")
	ft.want("fs/watchMissing", `{"watchId":1}`, "-32602 missing field `missing`")
	ft.write("m", "")
	ft.quiet()
}

func TestWatchMissingIgnoresOtherNames(t *testing.T) {
	needInotify(t)
	ft := newFileTest(t)
	ft.populate()
	ft.want("fs/watchMissing", `{"watchId":1,"missing":["$D/m"],"present":"$D/f"}`, watching)
	ft.write("other", "")
	ft.write("sub/m", "")
	ft.want("fs/watchMissing", `{"watchId":2,"missing":["$D/m2"],"present":null}`, watching)
	ft.write("m", "") // belongs to the previous watch
	ft.write("m2", "")
	ft.note(2)
	ft.quiet()
}

func TestWatchIDsOnlyGrow(t *testing.T) {
	needInotify(t)
	ft := newFileTest(t)
	ft.want("fs/watchMissing", `{"watchId":5,"missing":["$D/m"]}`, watching)
	ft.want("fs/watchMissing", `{"watchId":5,"missing":["$D/n"]}`, notWatching)
	ft.want("fs/watchMissing", `{"watchId":4,"missing":["$D/n"]}`, notWatching)
	ft.write("n", "")
	ft.write("m", "")
	ft.note(5)
	ft.want("fs/watchMissing", `{"watchId":18446744073709551615,"missing":["$D/o"]}`, watching)
	ft.quiet()
	ft.want("fs/watchMissing", `{"watchId":18446744073709551615,"missing":["$D/o"]}`, "-32603 file already closed")
}
