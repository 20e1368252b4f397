//go:build unix && !linux

package execserver

import "golang.org/x/sys/unix"

const (
	atCWD      = unix.AT_FDCWD
	searchOnly = 0
)

// stat describes a name in the directory, or an absolute path.
func stat(dir int, name string, follow bool) (metadata, error) {
	flags := 0
	if !follow {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, flags); err != nil {
		return metadata{}, err
	}
	kind := st.Mode & unix.S_IFMT
	return metadata{
		IsDirectory:  kind == unix.S_IFDIR,
		IsFile:       kind == unix.S_IFREG,
		IsSymlink:    kind == unix.S_IFLNK,
		Size:         uint64(st.Size),
		ModifiedAtMS: int64(st.Mtim.Sec)*1000 + int64(st.Mtim.Nsec)/1_000_000,
	}, nil
}
