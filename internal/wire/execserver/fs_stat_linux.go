package execserver

import "golang.org/x/sys/unix"

const (
	atCWD      = unix.AT_FDCWD
	searchOnly = unix.O_PATH // needs no read permission on the directory
)

// stat describes a name in the directory, or an absolute path.
func stat(dir int, name string, follow bool) (metadata, error) {
	flags := unix.AT_STATX_SYNC_AS_STAT | unix.AT_NO_AUTOMOUNT
	if !follow {
		flags |= unix.AT_SYMLINK_NOFOLLOW
	}
	var st unix.Statx_t
	if err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return metadata{}, err
	}
	kind := st.Mode & unix.S_IFMT
	m := metadata{
		IsDirectory:  kind == unix.S_IFDIR,
		IsFile:       kind == unix.S_IFREG,
		IsSymlink:    kind == unix.S_IFLNK,
		Size:         st.Size,
		ModifiedAtMS: milliseconds(st.Mtime),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		m.CreatedAtMS = milliseconds(st.Btime)
	}
	return m, nil
}

func milliseconds(t unix.StatxTimestamp) int64 {
	return t.Sec*1000 + int64(t.Nsec)/1_000_000
}
