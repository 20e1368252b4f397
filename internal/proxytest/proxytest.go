// Package proxytest starts nginx, Caddy and HAProxy as they are installed, for tests and
// benchmarks of what is behind them.
package proxytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/tether"
)

// Proxy is a proxy that can be started.
type Proxy struct {
	Name string
	// Default is a site with nothing but what passes requests on to an address.
	Default func(to string) string
	config  func(dir, preamble string, sites []string) string
	args    func(config string) []string
}

// All are the proxies, by name.
var All = map[string]Proxy{
	"nginx": {
		Name: "nginx", Default: func(to string) string { return "location / { proxy_pass http://" + to + "; }" },
		config: nginxConfig,
		args: func(config string) []string {
			return []string{"-p", filepath.Dir(config), "-e", "stderr", "-c", config}
		},
	},
	"caddy": {
		Name: "caddy", Default: func(to string) string { return "reverse_proxy " + to }, config: caddyConfig,
		args: func(config string) []string { return []string{"run", "--adapter", "caddyfile", "--config", config} },
	},
	"haproxy": {
		Name: "haproxy", Default: func(to string) string { return "backend spool\nmode http\nserver s " + to }, config: haproxyConfig,
		args: func(config string) []string { return []string{"-db", "-f", config} },
	},
}

// Program returns the path of the program. The error is [exec.ErrNotFound] if it is not
// installed.
func (p Proxy) Program() (string, error) {
	bin, err := exec.LookPath(p.Name)
	if err != nil {
		bin, err = exec.LookPath("/usr/sbin/" + p.Name)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, exec.ErrNotFound)
	}
	return bin, nil
}

// Running is a proxy that runs.
type Running struct {
	URLs []string // of the sites, in their order

	dir    string
	log    *os.File
	cancel context.CancelFunc
	ended  chan struct{}
	relays []net.Listener
}

// Start starts the proxy with these sites, in the foreground, and returns when they
// listen. The preamble stands beside the sites of nginx.
func (p Proxy) Start(preamble string, sites []string) (_ *Running, err error) {
	bin, err := p.Program()
	if err != nil {
		return nil, err
	}
	r := &Running{ended: make(chan struct{})}
	if r.dir, err = os.MkdirTemp("", "proxy"); err != nil { // a short name, for sockets in it
		return nil, err
	}
	config := filepath.Join(r.dir, "config")
	err = os.WriteFile(config, []byte(p.config(r.dir, preamble, sites)), 0o600)
	if err == nil {
		r.log, err = os.Create(filepath.Join(r.dir, "log"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	cmd := exec.CommandContext(ctx, bin, p.args(config)...)
	cmd.SysProcAttr = tether.Attr(9)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir, "HOME="+r.dir)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if err := cmd.Start(); err != nil {
		close(r.ended)
		r.Close()
		return nil, err
	}
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // it is killed
	}()
	for i := range sites {
		if err := r.await(siteSocket(r.dir, i)); err != nil {
			r.Close()
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		url, err := r.relay(siteSocket(r.dir, i))
		if err != nil {
			r.Close()
			return nil, err
		}
		r.URLs = append(r.URLs, url)
	}
	return r, nil
}

// Close ends the proxy.
func (r *Running) Close() {
	for _, l := range r.relays {
		_ = l.Close()
	}
	r.cancel()
	<-r.ended
	_ = r.log.Close()
	_ = os.RemoveAll(r.dir)
}

// await waits until a site listens.
func (r *Running) await(socket string) error {
	for limit := time.Now().Add(2 * time.Minute); ; {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-r.ended:
			said, _ := os.ReadFile(r.log.Name())
			return fmt.Errorf("it ended: %s", said)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(limit) {
			return fmt.Errorf("it does not listen: %w", err)
		}
	}
}

// siteSocket is where the site with a number listens.
func siteSocket(dir string, site int) string {
	return filepath.Join(dir, fmt.Sprintf("%d.sock", site))
}

func nginxConfig(dir, preamble string, sites []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "daemon off;\nmaster_process off;\npid %s/pid;\nevents {}\nhttp {\naccess_log off;\n%s\n", dir, preamble)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, "%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	for i, site := range sites {
		fmt.Fprintf(&b, "server {\nlisten unix:%s;\n%s\n}\n", siteSocket(dir, i), site)
	}
	return b.String() + "}\n"
}

func caddyConfig(dir, _ string, sites []string) string {
	var b strings.Builder
	b.WriteString("{\nadmin off\nauto_https off\n}\n")
	for i, site := range sites {
		fmt.Fprintf(&b, "http://:%d {\nbind unix/%s\n%s\n}\n", i+1, siteSocket(dir, i), site)
	}
	return b.String()
}

func haproxyConfig(dir, _ string, sites []string) string {
	var b strings.Builder
	b.WriteString("defaults\nmode http\ntimeout connect 60s\ntimeout client 120s\ntimeout server 120s\n")
	for i, site := range sites {
		name := fmt.Sprintf("spool%d", i)
		fmt.Fprintf(&b, "frontend front%d\nbind unix@%s\ndefault_backend %s\n%s\n", i, siteSocket(dir, i), name, strings.Replace(site, "backend spool", "backend "+name, 1))
	}
	return b.String()
}

// relay has a port of this machine lead to a unix socket, and returns its URL. So no
// proxy needs a port that another program could take.
func (r *Running) relay(socket string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.relays = append(r.relays, l)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in) // either end may leave
					_ = out.(*net.UnixConn).CloseWrite()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return "http://" + l.Addr().String(), nil
}
