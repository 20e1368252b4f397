package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

func (f *files) copy(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		SourcePath      string          `json:"sourcePath"`
		DestinationPath string          `json:"destinationPath"`
		Recursive       bool            `json:"recursive"`
		Sandbox         json.RawMessage `json:"sandbox"`
	}
	if err := decode(params, &p, "sourcePath", "destinationPath", "recursive"); err != nil {
		return nil, err
	}
	t, err := treeFor(p.Sandbox, true)
	if err != nil {
		return nil, err
	}
	source, err := fileuri.Parse(p.SourcePath)
	if err != nil {
		return nil, err
	}
	destination, err := fileuri.Parse(p.DestinationPath)
	if err != nil {
		return nil, err
	}
	if err := f.checkCopy(ctx, source, destination); err != nil {
		return nil, err
	}
	info, err := t.info(source, keepLast)
	if err != nil {
		return nil, err
	}
	switch info.Mode().Type() {
	case os.ModeDir:
		if !p.Recursive {
			return nil, rpc.Errorf(rpc.CodeInvalidRequest, "fs/copy requires recursive: true when sourcePath is a directory")
		}
		inside, ierr := isInside(t, destination, source)
		if ierr != nil {
			return nil, ierr
		}
		if inside {
			return nil, rpc.Errorf(rpc.CodeInvalidRequest, "fs/copy cannot copy a directory to itself or one of its descendants")
		}
		err = copyDirectory(ctx, t, source, destination)
	case os.ModeSymlink:
		err = copyLink(t, source, destination)
	case 0:
		err = copyFile(ctx, t, source, destination)
	default:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "fs/copy only supports regular files, directories, and symlinks")
	}
	if err != nil {
		return nil, err
	}
	return noResult{}, nil
}

// isInside reports whether path is, or would be, dir or a path below it.
func isInside(t tree, path, dir string) (bool, error) {
	dir, err := t.realPath(dir)
	if err != nil {
		return false, err
	}
	rest := ""
	for {
		real, err := t.realPath(path)
		if err == nil {
			path = filepath.Join(real, rest)
			break
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, syscall.ENOENT) || parent == path {
			return false, err
		}
		rest = filepath.Join(filepath.Base(path), rest)
		path = parent
	}
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/"), nil
}

// copyDirectory copies into a directory that may exist. It skips pipes, sockets
// and devices.
func copyDirectory(ctx context.Context, t tree, source, destination string) error {
	if err := mkdirAll(t, destination); err != nil {
		return err
	}
	dir, err := openDirectory(t, source, keepLast)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := dir.ReadDir(256)
		for _, e := range entries {
			from, to := filepath.Join(source, e.Name()), filepath.Join(destination, e.Name())
			if !t.shows(from) {
				continue
			}
			var err error
			switch e.Type() {
			case os.ModeDir:
				err = copyDirectory(ctx, t, from, to)
			case os.ModeSymlink:
				err = copyLink(t, from, to)
			case 0:
				err = copyFile(ctx, t, from, to)
			}
			if err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func copyLink(t tree, source, destination string) error {
	target, err := t.readlink(source)
	if err != nil {
		return err
	}
	return t.symlink(target, destination)
}

// copyFile copies the contents and the permissions of a regular file. Copying a
// file onto itself does not change it.
func copyFile(ctx context.Context, t tree, source, destination string) error {
	in, err := t.open(source, os.O_RDONLY|syscall.O_NONBLOCK, 0, followLinks)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // the file was replaced meanwhile
		return notAFile(source)
	}
	if there, err := t.info(destination, followLinks); err == nil && os.SameFile(info, there) {
		return nil
	}
	out, err := t.open(destination, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, uint32(info.Mode().Perm()), followLinks)
	if err != nil {
		return err
	}
	defer cancelWith(ctx, out)()
	err = copyContents(ctx, out, in)
	if there, serr := out.Stat(); err == nil && serr == nil && there.Mode().IsRegular() {
		err = out.Chmod(info.Mode()) // overrides the mode of an existing file and the umask
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// copyContents copies in steps and stops when the connection ends.
func copyContents(ctx context.Context, out, in *os.File) error {
	const step = 64 << 20
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(out, in, step)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
