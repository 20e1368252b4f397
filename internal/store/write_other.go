//go:build !linux

package store

import "os"

// writevAt writes the parts at off with one system call.
func writevAt(f *os.File, vec [][]byte, off int64) (int, error) {
	if len(vec) == 1 {
		return f.WriteAt(vec[0], off)
	}
	var all []byte
	for _, b := range vec {
		all = append(all, b...)
	}
	return f.WriteAt(all, off)
}

// makeFile opens the file of a segment and creates it if necessary.
func makeFile(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|flag, 0o600)
}

// datasync makes the contents of a file durable.
func datasync(f *os.File) error { return f.Sync() }

// allocate gives a file a size and allocates its blocks.
func allocate(f *os.File, size int64) error { return writeZeros(f, size) }

// renameNew renames a file, unless the new name is taken.
func renameNew(from, to string) error { return linkNew(from, to) }

// exchange gives two files each other's name, which is not on this platform.
func exchange(_, _ string) error { return ErrNoCompression }
