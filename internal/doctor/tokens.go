package doctor

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool/internal/privatedir"
)

// secretFlags are flags of our commands whose value is a file with a secret.
var secretFlags = []string{"--token-file", "--ws-token-file", "--ws-shared-secret-file", "--tls-key", "--tls-client-cert"}

// tokenFiles checks the files with secrets that this user and the given processes
// name.
func tokenFiles(o Options, processes func() ([]process, error)) []Finding {
	files := make(map[string]bool)
	if o.TokenFile != "" {
		files[o.TokenFile] = true
	}
	servers, err := processes()
	for _, p := range servers {
		for _, name := range secretFiles(p.args) {
			if !filepath.IsAbs(name) {
				if p.cwd == "" {
					continue
				}
				name = filepath.Join(p.cwd, name)
			}
			files[name] = true
		}
	}
	var found []Finding
	for name := range files {
		fi, err := os.Stat(name)
		if err != nil {
			found = append(found, warning("restore it, or restart the server with another", "a token file in use cannot be read: %v", err))
			continue
		}
		if err := privatedir.CheckSecret(name, fi); err != nil {
			found = append(found, problem("chmod 600 "+name+", and replace the token: others may have read it", "%v", err))
		}
	}
	switch {
	case len(found) > 0:
		return found
	case err != nil && len(files) == 0:
		return []Finding{ok("no token file named; other processes were not looked at: %v", err)}
	case len(files) == 0:
		return []Finding{ok("no server or command of yours uses a token file")}
	}
	return []Finding{ok("token files in use, all closed to others: %d", len(files))}
}

// secretFiles returns the files with secrets that a command line names.
func secretFiles(args []string) []string {
	var files []string
	for i, arg := range args {
		flag, value, hasValue := strings.Cut(arg, "=")
		for _, s := range secretFlags {
			switch {
			case flag != s:
			case hasValue:
				files = append(files, value)
			case i+1 < len(args):
				files = append(files, args[i+1])
			}
		}
	}
	return files
}
