package peers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

const jupyterServerVersion, ipykernelVersion = "2.21.1", "7.4.0"

// jupyterServer is Jupyter server, whose cells run commands.
var jupyterServer = Peer{
	Name: "jupyter", Version: jupyterServerVersion, Source: "PyPI jupyter-server, ipykernel " + ipykernelVersion,
	Command: "jupyter-server --no-browser --allow-root --IdentityProvider.token=TOKEN --ServerApp.port_retries=0 --port=PORT",
	Drive:   "WebSocket: a cell that calls subprocess.run, in a kernel that is idle or, if none is, a new one; to kill is to delete the kernel",
	Install: func(ctx context.Context) (string, error) {
		return venv(ctx, "jupyter-server-"+jupyterServerVersion, 10, "jupyter-server=="+jupyterServerVersion, "ipykernel=="+ipykernelVersion)
	},
	Launch: func(ctx context.Context, venv, dir string) (Server, error) {
		s := &jupyterPeer{venv: venv, dir: dir}
		return s, s.Relaunch(ctx)
	},
}

type jupyterPeer struct {
	venv, dir string
	httpServer
	mu   sync.Mutex
	idle []*jupyterJob // whose command has ended and whose kernel may be used again
}

// Relaunch implements Server.
func (s *jupyterPeer) Relaunch(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	if s.process, err = spawn(s.dir, filepath.Join(s.venv, "bin", "jupyter-server"), "--no-browser", "--allow-root",
		"--IdentityProvider.token=bench", "--ServerApp.port_retries=0", "--port="+port); err != nil {
		return err
	}
	s.idle = nil
	s.API = NewAPI("http://127.0.0.1:" + port + "/api")
	s.Header.Set("Authorization", "token bench")
	return s.ready(ctx, answers(s.Base))
}

// Run implements Server.
func (s *jupyterPeer) Run(ctx context.Context, argv ...string) (int, error) {
	j, err := s.Start(ctx, argv...)
	if err != nil {
		return 0, err
	}
	exit, err := j.Reader(true).Follow(ctx, func([]byte) {})
	if err == nil && !exit.Known {
		err = errors.New("no exit code")
	}
	return exit.Code, err
}

// Start implements Server.
func (s *jupyterPeer) Start(ctx context.Context, argv ...string) (Job, error) {
	j := &jupyterJob{s: s, session: rand.Text()}
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		j.kernel, j.session, j.ws = s.idle[n-1].kernel, s.idle[n-1].session, s.idle[n-1].ws
		s.idle = s.idle[:n-1]
	}
	s.mu.Unlock()
	var err error
	if j.ws == nil {
		var k struct{ ID string }
		if err := s.Call(ctx, "POST", "/kernels", map[string]any{"name": "python3"}, &k); err != nil {
			return nil, err
		}
		j.kernel = k.ID
		if j.ws, err = j.dial(ctx, j.session); err != nil {
			return nil, err
		}
	}
	request, err := j.request(argv)
	if err != nil {
		return nil, err
	}
	return j, j.ws.Write(ctx, websocket.MessageText, request)
}

// Pids implements Server: the server and its kernels.
func (s *jupyterPeer) Pids() []int {
	pid := s.cmd.Process.Pid
	return append([]int{pid}, children(pid)...)
}

type jupyterJob struct {
	s                    *jupyterPeer
	kernel, session, msg string
	ws                   *websocket.Conn // of the client that started it
}

func (j *jupyterJob) dial(ctx context.Context, session string) (*websocket.Conn, error) {
	url := fmt.Sprintf("ws%s/kernels/%s/channels?session_id=%s&token=bench", strings.TrimPrefix(j.s.Base, "http"), j.kernel, session)
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err == nil {
		ws.SetReadLimit(-1)
	}
	return ws, err
}

// Reader implements Job.
func (j *jupyterJob) Reader(own bool) Reader {
	if own {
		return &jupyterReader{j: j, session: j.session, ws: j.ws}
	}
	return &jupyterReader{j: j, session: rand.Text()}
}

// Kill implements Job.
func (j *jupyterJob) Kill(ctx context.Context) error {
	return j.s.Call(ctx, "DELETE", "/kernels/"+j.kernel, nil, nil)
}

type jupyterReader struct {
	j       *jupyterJob
	session string // a connection of the same session gets what the last one missed
	ws      *websocket.Conn
	idle    bool
	exit    *Exit
}

// Follow implements Reader. Only the session that started the command is told
// its exit code; others see that it has ended.
func (r *jupyterReader) Follow(ctx context.Context, deliver func([]byte)) (exit Exit, err error) {
	ws := r.ws
	r.ws = nil
	if ws == nil {
		if ws, err = r.j.dial(ctx, r.session); err != nil {
			return exit, err
		}
	}
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			_ = ws.CloseNow() // it is cut already
			return exit, err
		}
		var m jupyterMessage
		if err := json.Unmarshal(b, &m); err != nil {
			return exit, err
		}
		if m.Parent.ID != r.j.msg {
			continue
		}
		switch {
		case m.Type == "stream":
			deliver([]byte(m.Content.Text))
		case m.Type == "execute_reply":
			exit := m.exit()
			r.exit = &exit
		case m.Type == "status" && m.Content.State == "idle":
			r.idle = true
		}
		if !r.idle || (r.exit == nil && r.session == r.j.session) {
			continue
		}
		if r.session != r.j.session {
			return exit, ws.CloseNow()
		}
		r.j.ws = ws
		r.j.s.mu.Lock()
		r.j.s.idle = append(r.j.s.idle, r.j)
		r.j.s.mu.Unlock()
		return *r.exit, nil
	}
}
