package httpapi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// TestProblems checks that every exported error of package spool, and every reason
// of a failed start, becomes a problem of its own.
func TestProblems(t *testing.T) {
	sentinels := map[string]error{
		"ErrNotFound": spool.ErrNotFound, "ErrAmbiguous": spool.ErrAmbiguous, "ErrExists": spool.ErrExists, "ErrInputClosed": spool.ErrInputClosed,
		"ErrEnded": spool.ErrEnded, "ErrBusy": spool.ErrBusy, "ErrDenied": spool.ErrDenied, "ErrUnsupported": spool.ErrUnsupported,
		"ErrInvalid": spool.ErrInvalid, "ErrClosed": spool.ErrClosed, "ErrNotAsked": spool.ErrNotAsked, "ErrNotRetyped": spool.ErrNotRetyped, "ErrLost": spool.ErrLost,
	}
	files, err := filepath.Glob("../../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	var reasons []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for name := range exportedErrors(f) {
			found++
			if sentinels[name] == nil {
				t.Errorf("%s has no problem", name)
			}
		}
		for _, decl := range f.Decls {
			if g, ok := decl.(*ast.GenDecl); ok && g.Doc != nil && strings.HasPrefix(g.Doc.Text(), "StartError explains") {
				for line := range strings.Lines(g.Doc.Text()) {
					if rest, ok := strings.CutPrefix(line, "\t"); ok {
						reasons = append(reasons, strings.Fields(rest)[0])
					}
				}
			}
		}
	}
	if found != len(sentinels) || len(reasons) < 9 {
		t.Errorf("package spool has %d errors and %d reasons, the test knows %d", found, len(reasons), len(sentinels))
	}
	codes := make(map[string]bool)
	for name, sentinel := range sentinels {
		p := toProblem(fmt.Errorf("do something: %w", sentinel))
		if codes[p.Code] || problemOf(p.Code).sentinel != sentinel || p.Detail != "do something: "+sentinel.Error() {
			t.Errorf("%s becomes %+v", name, p)
		}
		codes[p.Code] = true
	}
	for _, reason := range reasons {
		p := toProblem(&spool.StartError{Reason: reason, Hint: "try harder", Err: syscall.ENOENT})
		if p.Code != "start_"+reason || p.Hint != "try harder" || p.Errno != int(syscall.ENOENT) {
			t.Errorf("the reason %s becomes %+v", reason, p)
		}
	}
	for _, tt := range []struct {
		err  error
		code string
	}{
		{&spool.StartError{Reason: "news", Err: errors.New("x")}, "start_other"},
		{fmt.Errorf("write: %w", syscall.ENOSPC), "no_space"},
		{errors.New("odd"), "internal"},
		{full(spool.ErrBusy), "queue_full"},
		{unauthenticated(&access.Refusal{Status: 429}), "too_many_failures"},
		{unauthenticated(&access.Refusal{Err: errors.New("x")}), "internal"},
	} {
		if p := toProblem(tt.err); p.Code != tt.code {
			t.Errorf("%v becomes %s, want %s", tt.err, p.Code, tt.code)
		}
	}
	seen := make(map[string]bool)
	for _, k := range problemKinds {
		if seen[k.code] || k.text == "" || k.title == "" || k.status < 400 {
			t.Errorf("problem %+v", k)
		}
		seen[k.code] = true
	}
}

// exportedErrors returns the names of the errors that a file exports.
func exportedErrors(f *ast.File) map[string]bool {
	names := make(map[string]bool)
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if strings.HasPrefix(name.Name, "Err") {
					names[name.Name] = true
				}
			}
		}
	}
	return names
}
