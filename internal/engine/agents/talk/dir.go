package talk

import "path/filepath"

// Dir returns the directory that a variable names, or else one below the home
// directory; empty if there is neither.
func Dir(getenv func(string) string, name, inHome string) string {
	if dir := getenv(name); dir != "" {
		return dir
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, inHome)
	}
	return ""
}
