package listen

import (
	"crypto/tls"
	"io/fs"
	"os"
	"sync"
)

// reloader has new connections use the certificate that is in the files now. While the
// files cannot be read, or do not fit each other, the one before stays.
type reloader struct {
	files TLSFiles

	mu     sync.Mutex
	seen   [2]fs.FileInfo
	config *tls.Config
}

// Reloading returns the configuration that [TLSFiles.Config] returns, and notices when
// the certificate or its key change.
func (f TLSFiles) Reloading() (*tls.Config, error) {
	seen := f.stat()
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	r := &reloader{files: f, seen: seen, config: config}
	first := config.Clone()
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.now(), nil }
	return first, nil
}

// stat returns what the files are now; nil for one that cannot be found.
func (f TLSFiles) stat() (seen [2]fs.FileInfo) {
	for i, name := range []string{f.Cert, f.Key} {
		if fi, err := os.Stat(name); err == nil {
			seen[i] = fi
		}
	}
	return seen
}

// now returns the configuration for a new connection.
func (r *reloader) now() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.files.stat()
	for i := range seen {
		if seen[i] == nil {
			return r.config
		}
	}
	same := func(i int) bool {
		then := r.seen[i]
		return then != nil && os.SameFile(seen[i], then) && seen[i].Size() == then.Size() && seen[i].ModTime().Equal(then.ModTime()) && seen[i].Mode() == then.Mode()
	}
	if same(0) && same(1) {
		return r.config
	}
	if config, err := r.files.Config(); err == nil {
		r.config, r.seen = config, seen
	}
	return r.config
}
