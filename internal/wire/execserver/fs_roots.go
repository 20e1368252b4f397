package execserver

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// check refuses a path that the subject of the connection may not use.
func (f *files) check(path string) error {
	if f.allow == nil {
		return nil
	}
	err := f.allow(path)
	if err == nil {
		return nil
	}
	if f.denied != nil {
		f.denied(err)
	}
	return rpc.Errorf(rpc.CodeInvalidRequest, "%s", err)
}

// checkCopy checks both ends of a copy. A directory is copied into one that may
// have symbolic links, so that every file of the copy is checked.
func (f *files) checkCopy(ctx context.Context, source, destination string) error {
	if f.allow == nil {
		return nil
	}
	if err := f.check(source); err != nil {
		return err
	}
	if err := f.check(destination); err != nil {
		return err
	}
	return filepath.WalkDir(source, func(path string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil // the copy says what is wrong
		}
		rel, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		return f.check(filepath.Join(destination, rel))
	})
}

// allowed returns the part of a walk that the subject of the connection may see:
// symbolic links may lead out of it.
func (f *files) allowed(r walkResult) walkResult {
	if f.allow == nil {
		return r
	}
	isAllowed := func(uri string) bool {
		path, err := fileuri.Parse(uri)
		return err == nil && f.allow(path) == nil
	}
	out := walkResult{Entries: []walkEntry{}, Errors: []walkError{}, Truncated: r.Truncated}
	for _, e := range r.Entries {
		if isAllowed(e.Path) {
			out.Entries = append(out.Entries, e)
		}
	}
	for _, e := range r.Errors {
		if isAllowed(e.Path) {
			out.Errors = append(out.Errors, e)
		}
	}
	return out
}

// checkEnvironment refuses the methods that read files of many directories to a
// subject that may not read all.
func (f *files) checkEnvironment(method string) error {
	switch method {
	case "environment/info", "environment/status":
		return nil
	}
	return f.check("/")
}
