package store

import (
	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL of linux/fs.h: the directories in one with this flag are
// unrelated to each other.
const topDir = 0x20000

// spread has ext4 place the directories that will be made in dir apart from each
// other. Other file systems do not know the flag, and ignoring that costs nothing.
func spread(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topDir)
	}
}
