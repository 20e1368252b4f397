package workspace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// patch fills in the unified diff of a change, in the form that git reads.
func (w *Workspace) patch(base int, c *change, p *spool.Change) error {
	if isDirMode(c.upper.Mode) || c.op == Deleted && isDirMode(c.base.Mode) {
		return nil
	}
	upper, err := openDir(unix.AT_FDCWD, filepath.Join(w.dir, upperDir))
	if err != nil {
		return fmt.Errorf("open the upper directory: %w", err)
	}
	defer unix.Close(upper)
	var before, after []byte
	okBefore, okAfter := true, true
	if c.op != Added && !isDirMode(c.base.Mode) {
		if before, okBefore, err = content(base, c.path, &c.base); err != nil {
			return err
		}
	}
	if c.op != Deleted {
		if after, okAfter, err = content(upper, c.path, &c.upper); err != nil {
			return err
		}
	}
	from, to := quote("a/"+c.path), quote("b/"+c.path)
	var b strings.Builder
	fmt.Fprintf(&b, "diff --git %s %s\n", from, to)
	switch {
	case c.op == Added:
		fmt.Fprintf(&b, "new file mode %s\n", gitMode(&c.upper))
	case c.op == Deleted:
		fmt.Fprintf(&b, "deleted file mode %s\n", gitMode(&c.base))
	case gitMode(&c.base) != gitMode(&c.upper):
		fmt.Fprintf(&b, "old mode %s\nnew mode %s\n", gitMode(&c.base), gitMode(&c.upper))
	}
	switch {
	case !okBefore || !okAfter:
		p.Binary = true
		fmt.Fprintf(&b, "Binary files %s and %s differ\n", from, to)
	default:
		if c.op == Added {
			from = os.DevNull
		}
		if c.op == Deleted {
			to = os.DevNull
		}
		text := diff.Diff(from, before, to, after)
		if _, rest, ok := bytes.Cut(text, []byte("\n")); ok { // without its first line
			b.Write(rest)
		}
	}
	p.Patch = b.String()
	return nil
}

// content reads a file or the target of a symbolic link. It reports false for what
// is no text, or too large.
func content(root int, path string, st *unix.Stat_t) ([]byte, bool, error) {
	at, name, err := openParent(root, path)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(at)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := readLink(at, name)
		if err != nil {
			return nil, false, fmt.Errorf("read link %s: %w", path, err)
		}
		return []byte(target), true, nil
	case unix.S_IFREG:
	default:
		return nil, false, nil
	}
	if st.Size > MaxPatchFile {
		return nil, false, nil
	}
	fd, err := openFile(at, name)
	if err == unix.EACCES {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	b := make([]byte, st.Size)
	n, err := readFull(fd, b)
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", path, err)
	}
	b = b[:n]
	return b, bytes.IndexByte(b, 0) < 0 && utf8.Valid(b), nil
}

// openParent opens the directory of a path, following no symbolic link.
func openParent(root int, path string) (int, string, error) {
	fd, err := openDir(root, ".")
	if err != nil {
		return -1, "", fmt.Errorf("open directory: %w", err)
	}
	for {
		dir, rest, more := strings.Cut(path, "/")
		if !more {
			return fd, path, nil
		}
		sub, err := openDir(fd, dir)
		_ = unix.Close(fd)
		if err != nil {
			return -1, "", fmt.Errorf("open directory %s: %w", dir, err)
		}
		fd, path = sub, rest
	}
}

// gitMode is the mode of a file as git writes it.
func gitMode(st *unix.Stat_t) string {
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return "120000"
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return "040000"
	case st.Mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// quote returns a path as git writes it: between quotes if it has characters that
// would be misread.
func quote(path string) string {
	plain := true
	for i := range len(path) {
		plain = plain && path[i] >= ' ' && path[i] < 0x7f && path[i] != '"' && path[i] != '\\'
	}
	if plain || utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' || r == '\\' }) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
