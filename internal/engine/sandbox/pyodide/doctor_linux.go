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
)

// Doctor says what this machine can do. It changes nothing.
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
	add("fork", forkable(), "interpreters are forked from one that is loaded")
	if err == nil {
		add("walls", b.tryWalls(ctx, nd), strings.Join(walls(canFork, ""), "; "))
	}
	if err == nil && derr == nil {
		add("prepared", b.prepared(d, nd), "there is a valid snapshot")
	}
	return list
}

func forkable() error {
	if !canFork {
		return errors.New("not on this architecture: every interpreter is a process of its own, started ahead of time")
	}
	return nil
}

// tryWalls makes the walls around nothing.
func (b *Backend) tryWalls(ctx context.Context, nd *node) error {
	empty, err := os.MkdirTemp("", "spool-doctor-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(empty) }()
	p := plan{Node: nd.path, Libs: nd.libs, Dist: empty, HostUID: unownedUID, HeapMB: heapMB}
	n, err := startNest(ctx, b.opts, p, nil)
	if err != nil {
		return fmt.Errorf("make the walls: %w", err)
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
		err = errors.New("not yet: the first use does it")
	}
	return err
}
