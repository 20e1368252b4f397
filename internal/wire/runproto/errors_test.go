package runproto

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// hops is how many wires an error crosses here: that of the keeper and that of
// the server.
const hops = 2

func across(err error) error {
	for range hops {
		err = DecodeError(EncodeError(err))
	}
	return err
}

func TestSentinelsSurviveEveryHop(t *testing.T) {
	for _, n := range errorNames {
		sent := fmt.Errorf("run x: %w: because", n.sentinel)
		got := across(sent)
		if !errors.Is(got, n.sentinel) || got.Error() != sent.Error() {
			t.Errorf("%s: %v", n.name, got)
		}
		for _, other := range errorNames {
			if other.sentinel != n.sentinel && errors.Is(got, other.sentinel) {
				t.Errorf("%s arrived as %s too", n.name, other.name)
			}
		}
	}
}

// notFound is a backend that has no runs, across the wire.
type notFound struct {
	spool.Backend
	err error
}

func (b notFound) Stat(context.Context, spool.RunID) (spool.Info, error) {
	return spool.Info{}, across(b.err)
}

func (b notFound) List(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	return func(func(spool.Info, error) bool) {}
}

// TestNotFoundIsSaidOnce checks that the text of a run that is not found names it once,
// and has the second cause if there is one.
func TestNotFoundIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("run x: %w", spool.ErrNotFound), `find run "x": not found`},
		{fmt.Errorf("run x: %w here, and the archive does not tell: %w", spool.ErrNotFound, errors.New("no way to it")), `find run "x": run x: not found here, and the archive does not tell: no way to it`},
	} {
		_, err := spool.Find(t.Context(), notFound{err: c.err}, "x")
		if !errors.Is(err, spool.ErrNotFound) || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// Every error of the root package that a caller may branch on has a name on
// the wire.
func TestEverySentinelHasAName(t *testing.T) {
	files, err := filepath.Glob("../../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, id := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(id.Name, "Err") {
						declared++
					}
				}
			}
		}
	}
	if declared != len(errorNames) {
		t.Errorf("the root package declares %d errors, %d have a name", declared, len(errorNames))
	}
}

func TestErrorOfSeveralKindsIsTheNarrowest(t *testing.T) {
	err := errors.Join(spool.ErrInvalid, spool.ErrUnsupported, spool.ErrEnded)
	for range 50 {
		var e *rpc.Error
		if !errors.As(EncodeError(err), &e) || !strings.Contains(string(e.Data), `"ended"`) {
			t.Fatalf("sent as %s", e.Data)
		}
	}
}

func TestStartErrorSurvivesEveryHop(t *testing.T) {
	tests := []*spool.StartError{
		{Reason: "bad_cwd", Hint: "make it", Err: &fs.PathError{Op: "chdir", Path: "/x", Err: syscall.ENOENT}},
		{Reason: "invalid", Err: fmt.Errorf("%w: run id %q", spool.ErrInvalid, "../x")},
		{Reason: "limit", Err: syscall.EAGAIN},
		{Reason: "other"},
	}
	for _, want := range tests {
		got := across(fmt.Errorf("start run x: %w", want))
		var se *spool.StartError
		if !errors.As(got, &se) {
			t.Fatalf("%v is no StartError", got)
		}
		if se.Reason != want.Reason || se.Hint != want.Hint {
			t.Errorf("%q %q, want %q %q", se.Reason, se.Hint, want.Reason, want.Hint)
		}
		if want.Err != nil && se.Err.Error() != want.Err.Error() {
			t.Errorf("cause %v, want %v", se.Err, want.Err)
		}
		for _, cause := range []error{syscall.ENOENT, syscall.EAGAIN, fs.ErrNotExist, spool.ErrInvalid} {
			if errors.Is(got, cause) != errors.Is(want, cause) {
				t.Errorf("%v is %v: %v", got, cause, errors.Is(got, cause))
			}
		}
	}
}

func TestAnswered(t *testing.T) {
	if !Answered(across(fmt.Errorf("open: %w", syscall.ENOENT))) {
		t.Error("an errno that was answered is not known as such")
	}
	if Answered(rpc.ErrConnClosed) || Answered(syscall.ECONNREFUSED) {
		t.Error("a lost connection is taken for an answer")
	}
}
