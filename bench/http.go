package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/client"
)

// httpPart is a part of the measurement of the HTTP server.
type httpPart struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context, b *bench) error
}

var httpParts = []httpPart{
	{"first", 4 * time.Minute, httpFirst},
	{"start", 8 * time.Minute, httpStart},
	{"bulk", 5 * time.Minute, httpBulk},
	{"crowd", 8 * time.Minute, httpCrowd},
	{"cut", 4 * time.Minute, httpCut},
	{"lens", 5 * time.Minute, httpLens},
	{"screen", 4 * time.Minute, httpScreen},
	{"mcp", 3 * time.Minute, httpMCP},
	{"proxies", 3 * time.Minute, httpProxies},
	{"serve", 5 * time.Minute, httpServe},
	{"list", 5 * time.Minute, httpList},
}

func httpPartNames() []string {
	var names []string
	for _, p := range httpParts {
		names = append(names, p.name)
	}
	return names
}

// httpBench is what the parts share.
type httpBench struct {
	peers map[string]*measuredPeer // by name, those that were wanted
	codex *subject                 // nil until it is needed
	notes []string
	log   bool // the long log is written
}

// measureHTTP makes one round of all parts. A part that fails does not stop the next.
func measureHTTP(ctx context.Context, b *bench) error {
	if b.web == nil {
		b.web = &httpBench{peers: map[string]*measuredPeer{}}
	}
	var errs []error
	for _, part := range httpParts {
		if !chosen(b.tasks, part.name) {
			continue
		}
		began := time.Now()
		limited, cancel := context.WithTimeoutCause(ctx, part.limit, fmt.Errorf("not done after %v", part.limit))
		err := part.do(limited, b)
		if cause := context.Cause(limited); err != nil && cause != nil {
			err = cause
		}
		cancel()
		fmt.Fprintf(os.Stderr, "  %-8s %5.1f s %v\n", part.name, time.Since(began).Seconds(), err)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// httpNotes says what was not measured, and why.
func (b *bench) httpNotes() []string {
	if b.web == nil {
		return nil
	}
	return b.web.notes
}

// note adds a note, once.
func (h *httpBench) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(h.notes, text) {
		h.notes = append(h.notes, text)
	}
}

func (h *httpBench) close() error {
	if h.codex == nil {
		return nil
	}
	return h.codex.shutdown()
}

// beside has a peer do something with a new server. A peer that cannot be had or that
// fails is noted and left out.
func (b *bench) beside(ctx context.Context, name string, do func(p *measuredPeer, ready time.Duration) error) error {
	if !chosen(b.peers, name) {
		return nil
	}
	p := b.web.peers[name]
	if p == nil {
		p = &measuredPeer{}
		for _, peer := range peers.Web() {
			if peer.Name == name {
				p.Peer = peer
			}
		}
		b.web.peers[name] = p
		var err error
		if p.installed, err = p.Install(ctx); err != nil {
			p.absent = peers.Reason(err)
		}
	}
	if p.absent != "" {
		b.web.note("%s %s (%s) was not measured: %s", p.Name, p.Version, p.Source, p.absent)
		return nil
	}
	began := time.Now()
	err := b.peerLaunch(ctx, p)
	if err == nil {
		err = do(p, time.Since(began))
	}
	if p.Server != nil {
		err = errors.Join(err, p.Close())
		p.Server = nil
	}
	err = errors.Join(err, os.RemoveAll(p.dir))
	if err != nil && ctx.Err() == nil {
		p.absent = peers.Reason(err)
		b.web.note("%s %s (%s) was not measured: %s", p.Name, p.Version, p.Source, p.absent)
		return nil
	}
	return err
}

// reference returns the exec-server of codex.
func (b *bench) reference(ctx context.Context) (*subject, error) {
	if b.web.codex == nil {
		path, version, err := findCodex(ctx, b.codex)
		if err != nil {
			return nil, err
		}
		b.version = version
		s := &subject{name: subjectCodex, path: path, dir: filepath.Join(b.dir, "http-codex")}
		if err := s.restart(ctx); err != nil {
			return nil, err
		}
		b.web.codex = s
	}
	return b.web.codex, nil
}

// webServer is a running spool serve with a client of the owner.
type webServer struct {
	*server
	*peers.API
	token string
}

// publicName is a name of the servers, for requests through proxies.
const publicName = "spool.test"

// launchServe starts spool serve with dir as its home, without the limits that keep one
// client from taking everything, and with more arguments.
func (b *bench) launchServe(ctx context.Context, dir string, more ...string) (*webServer, error) {
	path, err := filepath.Abs(b.spool)
	if err != nil {
		return nil, err
	}
	const many = "1000000"
	args := []string{"serve", "--listen", "127.0.0.1:0", "--host", publicName, "--compress-after", "-1s",
		"--max-request-rate", many, "--max-start-rate", many, "--max-input-rate", many,
		"--max-streams", many, "--max-streams-per-subject", many, "--max-streams-per-run", many}
	s, err := launchServer(ctx, dir, "http://", path, append(args, more...)...)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(dir, "spool", "server-token"))
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	web := &webServer{server: s, API: peers.NewAPI(s.url), token: strings.TrimSpace(string(token))}
	web.Header.Set("Authorization", "Bearer "+web.token)
	web.Client.Transport.(*http.Transport).ReadBufferSize = 256 << 10
	return web, nil
}

// stop ends the server, and the keeper that it started.
func (s *webServer) stop() error {
	s.Client.CloseIdleConnections()
	err := s.server.stop()
	return errors.Join(err, endServers(filepath.Join(s.cmd.Dir, "spool")))
}

// ownMemory is the resident memory of the server, without the keeper.
func (s *webServer) ownMemory() (int64, error) { return peers.RSS(s.cmd.Process.Pid) }

// openFiles counts the open files of a process.
func openFiles(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}

// dial connects to /v1/rpc.
func (s *webServer) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, s.url, client.Options{Token: s.token})
}

// withServe has something done with a new server, which has dir as its home.
func (b *bench) withServe(ctx context.Context, dir string, do func(s *webServer) error) error {
	s, err := b.launchServe(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.stop())
}
