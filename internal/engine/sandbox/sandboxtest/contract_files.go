package sandboxtest

import (
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// fileCalls makes every file call that a script can make, in memory and in a
// directory of the host. All back ends send them to vfs.Server.
func fileCalls(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Mounts = []python.Mount{{Host: t.TempDir(), Guest: "/mnt", Mode: python.MountReadWrite}}
	})
	for _, dir := range []string{"/tmp", "/mnt"} {
		b.prints(fmt.Sprintf(`
import errno, os, stat
os.chdir(%q)
def fails(f, *args):
    try:
        f(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "succeeds"

# Files by their names.
open("f", "xb").close()
print("create", fails(open, "f", "xb"), os.stat("f").st_size, stat.S_ISREG(os.stat("f").st_mode))
os.truncate("f", 5)
print("truncate", open("f", "rb").read(), fails(os.truncate, "none", 1))
os.utime("f", (1, 2.5))
st = os.stat("f")
print("utime", st.st_atime, st.st_mtime, st.st_nlink)
os.utime("f", (3000000000, 0))
print("utime", os.stat("f").st_atime, os.stat("f").st_mtime)
os.mkdir("d")
print("mkdir", fails(os.mkdir, "d"), fails(os.mkdir, "none/d"), fails(os.mkdir, "f/d"), stat.S_ISDIR(os.stat("d").st_mode))
for name in ("b", "ü€\U0001f600", "a"):
    open("d/" + name, "w").close()
print("readdir", sorted(os.listdir("d")), sorted((e.name, e.is_file()) for e in os.scandir("d"))[0], fails(os.listdir, "f"), fails(os.listdir, "none"))
os.symlink("d/ü€\U0001f600", "l")
print("symlink", os.readlink("l"), fails(os.symlink, "x", "l"), fails(os.readlink, "f"), fails(os.readlink, "none"))
print("lstat", stat.S_ISLNK(os.lstat("l").st_mode), stat.S_ISREG(os.stat("l").st_mode), fails(os.stat, "none"))
os.rename("d/a", "d/c")
print("rename", sorted(os.listdir("d")), fails(os.rename, "none", "x"), fails(os.rename, "f", "d"), fails(os.rename, "d", "f"))
print("unlink", fails(os.unlink, "none"), fails(os.rmdir, "d"), fails(os.rmdir, "f"))
for name in os.listdir("d"): os.unlink("d/" + name)
os.rmdir("d"); os.unlink("l")

# Open files.
fd = os.open("f", os.O_RDWR | os.O_TRUNC)
one, other = os.fstat(fd), os.stat("f")
print("fstat", one.st_size, one.st_ino == other.st_ino, one.st_dev == other.st_dev, one.st_mtime == other.st_mtime)
print("write", os.write(fd, b"0123456789"), os.pwrite(fd, b"ab", 3), os.pread(fd, 4, 2), os.pread(fd, 4, 100))
os.ftruncate(fd, 4)
print("ftruncate", os.fstat(fd).st_size, os.pread(fd, 100, 0))
print("seek", os.lseek(fd, 2**31 - 1, os.SEEK_SET), os.read(fd, 1), os.lseek(fd, -1, os.SEEK_END), os.read(fd, 2))
end = os.open("f", os.O_WRONLY | os.O_APPEND)
print("append", os.write(end, b"!"), os.write(end, b"?"), os.pread(fd, 100, 0), fails(os.read, end, 1))
os.fsync(fd)
os.unlink("f")
print("unlinked", os.pread(fd, 100, 0), fails(os.stat, "f"))
os.close(fd); os.close(end)
print("closed", fails(os.read, fd, 1), fails(os.fstat, fd), fails(os.close, fd))
`, dir), `create EEXIST 0 True
truncate b'\x00\x00\x00\x00\x00' ENOENT
utime 1.0 2.5 1
utime 3000000000.0 0.0
mkdir EEXIST ENOENT ENOTDIR True
readdir ['a', 'b', 'ü€😀'] ('a', True) ENOTDIR ENOENT
symlink d/ü€😀 EEXIST EINVAL ENOENT
lstat True True ENOENT
rename ['b', 'c', 'ü€😀'] ENOENT EISDIR ENOTDIR
unlink ENOENT ENOTEMPTY ENOTDIR
fstat 0 True True True
write 10 2 b'2ab5' b''
ftruncate 4 b'012a'
seek 2147483647 b'' 3 b'a'
append 1 1 b'012a!?' EBADF
unlinked b'012a!?' ENOENT
closed EBADF EBADF EBADF
`)
	}
}

// fileCallsAtTheirLimits exceeds the limits of file calls: the script sees the
// errno of Linux and goes on.
func fileCallsAtTheirLimits(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.OpenFiles = 10 })
	b.prints(fmt.Sprintf(`
import errno, os
MAX_IO, MAX_PATH, MAX_NAME = %d, %d, %d
os.chdir("/tmp")
def fails(f, *args):
    try:
        f(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "succeeds"

# More bytes than one call carries.
for size in (MAX_IO - 1, MAX_IO, MAX_IO + 1, 3 * MAX_IO + 5):
    want = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    with open("big", "wb", buffering=0) as f:
        done = 0
        while done < size: done += f.write(want[done:])
    with open("big", "ab", buffering=0) as f:
        done = 0
        while done < size: done += f.write(want[done:])
    with open("big", "rb") as f:
        print(size - MAX_IO, f.read() == want + want)
os.unlink("big")
open("f", "w").close()

# Longer paths than there are.
print(fails(os.stat, "x" * MAX_NAME), fails(os.stat, "x" * (MAX_NAME + 1)))
print(fails(os.symlink, "x" * MAX_PATH, "l"), fails(os.symlink, "x" * 3 * MAX_IO, "l"), fails(os.stat, "x" * 3 * MAX_IO))
name, dirs = "x" * 200, "/tmp"
while len(dirs) + 1 + len(name) <= MAX_PATH:
    dirs += "/" + name
    os.mkdir(dirs)
long = dirs + "/" + name
print(fails(os.stat, long), fails(os.mkdir, long), fails(os.rename, "f", long), fails(os.unlink, long), fails(open, long, "w"))

# More open files than allowed. Those that are refused are not made.
held, refused = [], 0
for i in range(20):
    try:
        held.append(open("f%%d" %% i, "w"))
    except OSError as e:
        refused += 1
        if e.errno != errno.EMFILE: print(errno.errorcode[e.errno])
print(0 < len(held) <= 10, refused == 20 - len(held))
for f in held: f.close()
print(sorted(os.listdir()) == sorted([f.name for f in held] + ["f", name]))
print(open("f0", "w").write("again"))
`, vfs.MaxIO, vfs.MaxPath, vfs.MaxName), `-1 True
0 True
1 True
2097157 True
ENOENT ENAMETOOLONG
ENAMETOOLONG ENAMETOOLONG ENAMETOOLONG
ENAMETOOLONG ENAMETOOLONG ENAMETOOLONG ENAMETOOLONG ENAMETOOLONG
True True
True
5
`)
	b.alive()
}
