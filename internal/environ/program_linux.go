package environ

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// libcPath is searched where the environment has no PATH.
const libcPath = "/bin:/usr/bin"

// LookProgram finds the file to execute for a name, as execvp would in the
// environment and working directory of the program.
func LookProgram(name, cwd string, env []string) (string, error) {
	if name == "" {
		return "", unix.ENOENT
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, ok := Lookup(env, "PATH")
	if !ok {
		path = libcPath
	}
	result := error(unix.ENOENT)
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name // not cleaned: the kernel resolves dir/..
		seen := file
		if cwd != "" && !filepath.IsAbs(dir) {
			seen = cwd + "/" + file
		}
		var st unix.Stat_t
		if unix.Stat(seen, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if err := unix.Faccessat(unix.AT_FDCWD, seen, unix.X_OK, unix.AT_EACCESS); err != nil {
			result = unix.EACCES // unless a later directory has one
			continue
		}
		return file, nil
	}
	return "", result
}
