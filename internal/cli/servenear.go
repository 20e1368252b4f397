package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/listen"
)

// listenNear listens for other nodes of this machine, and returns the path of the socket. The
// listener is nil if there is none: they connect as all others do.
func listenNear(state string, reachable bool, log *slog.Logger) (*listen.Listener, string) {
	if !reachable { // they ask for the way at its address
		return nil, ""
	}
	path, err := cluster.SocketPath(state)
	var l *listen.Listener
	if err == nil {
		l, err = listen.Open(listen.Address{Scheme: "unix", Path: path}, listen.Options{})
	}
	if err != nil {
		log.Debug("no socket for other nodes of this machine", "err", err)
		return nil, ""
	}
	return l, path
}

// serveNear serves other nodes of this machine what all nodes are served. The caller closes it.
func serveNear(l *listen.Listener, near *cluster.Near, nodes http.Handler, log *slog.Logger) io.Closer {
	auth, admitted := l.Authenticator(nil), near.Handler(nodes)
	s := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := auth.Authenticate(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		admitted.ServeHTTP(w, r)
	}), log)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return near.ConnContext(l.ConnContext(ctx, c), c)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // ends with Close
	}()
	return closer(func() error {
		err := s.Close()
		<-ended
		return err
	})
}
