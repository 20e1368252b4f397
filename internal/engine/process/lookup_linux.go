package process

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// libcPath is where programs are looked for without a PATH.
const libcPath = "/bin:/usr/bin"

// lookProgram finds the file to execute for a name, as execvp would in the
// environment and working directory the program is going to have.
func lookProgram(name, cwd string, env []string) (string, error) {
	if name == "" {
		return "", unix.ENOENT
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := libcPath
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
			break
		}
	}
	result := error(unix.ENOENT)
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name // not cleaned: the kernel knows what dir/.. is
		seen := file
		if cwd != "" && !filepath.IsAbs(dir) {
			seen = cwd + "/" + file
		}
		var st unix.Stat_t
		if unix.Stat(seen, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if err := unix.Faccessat(unix.AT_FDCWD, seen, unix.X_OK, unix.AT_EACCESS); err != nil {
			result = unix.EACCES // unless there is a better one further on
			continue
		}
		return file, nil
	}
	return "", result
}
