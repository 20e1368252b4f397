//go:build amd64 || arm64

package pyodide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
)

// Doctor reports what this machine supports. It changes nothing.
func (b *Backend) Doctor(ctx context.Context) []guest.Finding {
	var list []guest.Finding
	add := func(name string, err error, text string) {
		if err != nil {
			text = err.Error()
			var u *guest.UnavailableError
			if errors.As(err, &u) {
				text = u.Err.Error()
				if u.Hint != "" {
					text += "; " + u.Hint
				}
			}
		}
		list = append(list, guest.Finding{Name: name, OK: err == nil, Text: text})
	}
	nd, err := findNode(ctx, b.opts.Node)
	if err == nil {
		add("node", nil, nd.path+" "+nd.version)
	} else {
		add("node", err, "")
	}
	dir, derr := findDist(b.opts.Dist)
	var d *dist
	if derr == nil {
		d, derr = openDist(dir)
	}
	add("distribution", derr, dir)
	add("fork", forkable(), "interpreters are forked from a loaded process")
	if err == nil {
		add("protections", b.tryProtections(ctx, nd), strings.Join(protections(canFork, ""), "; "))
		w, err := b.Wall(ctx, guest.Setup{})
		add("isolation", err, fmt.Sprintf("%s around Node; guarantees %s", w.Mechanism, strings.Join(w.Guarantees, " ")))
	}
	if err == nil && derr == nil {
		add("prepared", b.prepared(d, nd), "a valid snapshot exists")
	}
	return list
}

func forkable() error {
	if !canFork {
		return errors.New("not on this architecture: each interpreter starts as its own process, ahead of time")
	}
	return nil
}

// tryProtections starts a supervisor with all protections and no interpreter.
func (b *Backend) tryProtections(ctx context.Context, nd *node) error {
	empty, err := os.MkdirTemp("", "spool-doctor-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(empty) }()
	proof, err := b.prove(ctx, false)
	if err == nil && proof.Mechanism != isolate.Namespaces {
		err = b.noNamespaces(proof)
	}
	var n *group
	if err == nil {
		n, err = b.startGroup(ctx, plan{Node: nd.path, Libs: nd.libs, Dist: empty, HeapMB: heapMB, Wall: proof.Mechanism}, nil)
	}
	if err != nil {
		return fmt.Errorf("set up the protections: %w", err)
	}
	n.close()
	return nil
}

func (b *Backend) prepared(d *dist, nd *node) error {
	base := b.opts.CacheDir
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		base = filepath.Join(cache, "spool")
	}
	fp, err := d.fingerprint(nd.path)
	if err != nil {
		return err
	}
	s, err := readStamp(filepath.Join(base, cacheName), fp)
	if err == nil && s == nil {
		err = errors.New("not prepared yet; the first use prepares it")
	}
	return err
}
