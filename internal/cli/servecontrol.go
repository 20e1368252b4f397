package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/privatedir"
)

const (
	controlDir    = "serve" // of a state directory: the sockets of its servers
	controlFor    = 5 * time.Second
	longestSocket = 100 // bytes of the path of a socket, below the limit of every platform
	controlBytes  = 1 << 20
)

// serveStatus is what a server says of itself on its control socket.
type serveStatus struct {
	PID       int       `json:"pid"`
	URL       string    `json:"url"` // empty on a unix socket
	Listen    string    `json:"listen"`
	TLS       bool      `json:"tls"`
	Hosts     []string  `json:"hosts,omitempty"`
	Origins   []string  `json:"origins,omitempty"`
	Plaintext bool      `json:"plaintext,omitempty"` // other machines reach it without TLS
	Codes     int       `json:"codes"`               // pending
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
}

// signInAddress is where a page signs in.
type signInAddress struct {
	URL string `json:"url"`
}

// serveControl lets the user of this machine have one-time codes, over a socket that
// nobody else can use. The caller closes it.
func (a *app) serveControl(dir string, status serveStatus, codes *access.Codes, node *clusterNode) (io.Closer, error) {
	path, temp, err := controlPath(dir)
	if err != nil {
		return nil, err
	}
	l, err := listen.Open(listen.Address{Scheme: "unix", Path: path}, listen.Options{})
	if err != nil {
		return nil, errors.Join(err, removeTemp(dir, temp))
	}
	auth := l.Authenticator(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		now := status
		now.Codes = codes.Pending()
		_ = json.NewEncoder(w).Encode(now) // the client may have left
	})
	mux.HandleFunc("POST /code", func(w http.ResponseWriter, _ *http.Request) {
		if status.URL == "" {
			http.Error(w, "a browser cannot open a unix socket", http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(signInAddress{status.URL + "/#c=" + codes.Make()})
	})
	node.control(mux)
	s := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := auth.Authenticate(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}), nil)
	s.ConnContext = l.ConnContext
	ended := make(chan struct{})
	go func() {
		_ = s.Serve(l) // ends with Close
		close(ended)
	}()
	return closer(func() error {
		err := s.Close()
		<-ended
		return errors.Join(err, removeTemp(dir, temp))
	}), nil
}

type closer func() error

func (c closer) Close() error { return c() }

// controlPath returns the path of the control socket of this process. If that is too
// long for a socket, it is a link to one in a directory for temporary files.
func controlPath(dir string) (path, temp string, err error) {
	sockets := filepath.Join(dir, controlDir)
	if err := privatedir.Make(sockets); err != nil {
		return "", "", err
	}
	path = socketOf(dir)
	if len(path) <= longestSocket {
		return path, "", nil
	}
	temp, err = os.MkdirTemp("", "spool-serve-")
	if err != nil {
		return "", "", err
	}
	socket := filepath.Join(temp, "socket")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that had the same pid
		return "", "", errors.Join(err, os.RemoveAll(temp))
	}
	if err := os.Symlink(socket, path); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(temp))
	}
	return socket, temp, nil
}

func socketOf(dir string) string {
	return filepath.Join(dir, controlDir, strconv.Itoa(os.Getpid())+".sock")
}

// removeTemp removes the directory of a socket, and the link to it.
func removeTemp(dir, temp string) error {
	if temp == "" {
		return nil
	}
	return errors.Join(os.Remove(socketOf(dir)), os.RemoveAll(temp))
}

// errNoServer means that no server of the state directory runs.
var errNoServer = errors.New("no server of this state directory runs")

// controlSockets returns the sockets of the servers of a state directory, the one
// that started last first.
func controlSockets(dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, controlDir, "*.sock"))
	if err != nil { // the pattern of a strange directory
		return nil
	}
	when := make(map[string]time.Time, len(paths))
	for _, p := range paths {
		if fi, err := os.Lstat(p); err == nil {
			when[p] = fi.ModTime()
		}
	}
	slices.SortFunc(paths, func(x, y string) int { return when[y].Compare(when[x]) })
	return paths
}

// errNoNode is the error for what only a node of a cluster answers.
var errNoNode = &hintedError{errors.New("the server of this state directory is no node of a cluster"), `end it, and start it again with "spool serve --cluster"`}

// joinAnswers joins the errors of the servers of a state directory, of which several may
// be no node.
func joinAnswers(errs []error) error {
	others := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, errNoNode) })
	if len(others) == 0 && len(errs) > 0 {
		return errNoNode
	}
	return errors.Join(others...)
}

// askServer sends a request to the server of a control socket.
func askServer(ctx context.Context, socket, method, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, controlFor)
	defer cancel()
	if to, err := os.Readlink(socket); err == nil {
		socket = to
	}
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, controlBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/cluster") {
		return errNoNode
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers: %s", bytes.TrimSpace(b))
	}
	return json.Unmarshal(b, v)
}

// isGone reports whether the error of a request to a control socket means that its
// server died.
func isGone(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// signInURL returns the address at which a page signs in to a server of the state
// directory.
func signInURL(ctx context.Context, dir string) (string, error) {
	var errs []error
	for _, socket := range controlSockets(dir) {
		var at signInAddress
		err := askServer(ctx, socket, http.MethodPost, "/code", &at)
		if err == nil {
			return at.URL, nil
		}
		if isGone(err) {
			err = os.Remove(socket)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("%w that a browser can open: %w", errNoServer, err)
	}
	return "", errNoServer
}

// pageURL returns the URL of a server for a browser on this machine.
func pageURL(l *listen.Listener, hosts []string) string {
	url := strings.Replace(l.URL(), "ws", "http", 1)
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	scheme, _, _ := strings.Cut(url, "://")
	host := tcp.IP.String()
	switch {
	case scheme == "https" && len(hosts) > 0:
		host = hosts[0]
	case tcp.IP.IsUnspecified() && tcp.IP.To4() == nil:
		host = "::1"
	case tcp.IP.IsUnspecified():
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}
