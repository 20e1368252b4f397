package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/testcache"
)

const wettyVersion = "3.2.0"

// wetty is a server of terminals. It starts a program without a login only for root.
var wetty = Peer{
	Name: "wetty", Version: wettyVersion, Source: "npm wetty",
	Command: "wetty --host 127.0.0.1 --port PORT --ssh-host localhost --command sh",
	Drive:   "socket.io over a WebSocket",
	Install: func(ctx context.Context) (string, error) {
		if os.Getuid() != 0 {
			return "", fmt.Errorf("it starts terminals without a login only for root: %w", ErrCannot)
		}
		return npmtest.Program{
			Name: "wetty-" + wettyVersion, Packages: []string{"wetty@" + wettyVersion}, File: "node_modules/wetty/build/main.js",
			Finish: func(dir string) error { // its part in C++ is compiled
				_, err := testcache.Run(ctx, "npm", "rebuild", "--prefix", dir, "node-pty")
				return err
			},
		}.Cached()
	},
	Launch: func(ctx context.Context, main, dir string) (Server, error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s := &wettyServer{}
		if s.process, err = spawn(dir, "node", main, "--host", "127.0.0.1", "--port", port, "--ssh-host", "localhost", "--command", "sh"); err != nil {
			return nil, err
		}
		s.API = NewAPI("http://127.0.0.1:" + port)
		return s, s.ready(ctx, answers(s.Base))
	},
}

type wettyServer struct{ httpServer }

// Terminal implements Terminals.
func (s *wettyServer) Terminal(ctx context.Context) (first time.Time, err error) {
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.Base, "http")+"/socket.io/?EIO=4&transport=websocket", nil)
	if err != nil {
		return first, err
	}
	defer func() { _ = ws.CloseNow() }() // that ends its terminal
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			return first, err
		}
		switch {
		case bytes.HasPrefix(b, []byte("0{")): // a session: enter the namespace
			if err := ws.Write(ctx, websocket.MessageText, []byte("40")); err != nil {
				return first, err
			}
		case bytes.HasPrefix(b, []byte(`42["data"`)):
			return time.Now(), nil
		}
	}
}

// Run implements Server.
func (s *wettyServer) Run(context.Context, ...string) (int, error) { return 0, ErrCannot }

// Start implements Server.
func (s *wettyServer) Start(context.Context, ...string) (Job, error) { return nil, ErrCannot }

// Relaunch implements Server.
func (s *wettyServer) Relaunch(context.Context) error { return ErrCannot }
