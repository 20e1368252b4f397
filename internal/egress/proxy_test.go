package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/proxy"
)

// stage is a proxy with a real listener, and what it reported.
type stage struct {
	*Proxy
	addr string
	urls *url.URL

	mu        sync.Mutex
	decisions []Decision
}

// open starts a proxy for which names end at this machine.
func open(t testing.TB, o Options) *stage {
	t.Helper()
	s := &stage{}
	o.Report = func(d Decision) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.decisions = append(s.decisions, d)
	}
	if o.LookUp == nil {
		o.LookUp = func(_ context.Context, host string) ([]netip.Addr, error) {
			if strings.HasPrefix(host, "gone.") {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Proxy, s.addr = New(o), l.Addr().String()
	s.urls = &url.URL{Scheme: "http", Host: s.addr}
	s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *stage) reported() []Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Decision(nil), s.decisions...)
}

// client uses the proxy for HTTP and CONNECT.
func (s *stage) client(t testing.TB, c *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(s.urls), TLSClientConfig: c}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// get returns the status and the body of a request.
func get(t testing.TB, c *http.Client, address string) (int, string) {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func portOfURL(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

// hello is a server that says what it was asked.
func hello(t testing.TB, encrypted bool) (server *httptest.Server, port string) {
	t.Helper()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s auth=%q", r.Method, r.Host, r.URL.Path, r.Header.Get("Authorization"))
	})
	if encrypted {
		server = httptest.NewTLSServer(h)
	} else {
		server = httptest.NewServer(h)
	}
	t.Cleanup(server.Close)
	return server, portOfURL(t, server.URL)
}

// trust returns a configuration for which a server's certificate is good for any name
// that the tests use.
func trust(s *httptest.Server) *tls.Config {
	c := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	c.ServerName = "example.com" // which the certificate is for
	return c
}

func TestHTTP(t *testing.T) {
	_, port := hello(t, false)
	s := open(t, Options{Rules: rules(t, []string{"good.test", "gone.test", "127.0.0.0/8"}, []string{"bad.test"})})
	c := s.client(t, nil)
	for range 3 {
		if code, body := get(t, c, "http://good.test:"+port+"/path"); code != 200 || body != fmt.Sprintf("GET good.test:%s /path auth=\"\"", port) {
			t.Errorf("status %d: %s", code, body)
		}
	}
	for host, text := range map[string]string{"bad.test": "a rule denies it", "other.test": "no rule allows it (allow it with --allow-net other.test)"} {
		for range 2 {
			if code, body := get(t, c, "http://"+host+":"+port+"/"); code != 403 || !strings.Contains(body, text) {
				t.Errorf("%s: status %d: %s", host, code, body)
			}
		}
	}
	if code, body := get(t, c, "http://gone.test/"); code != 502 || !strings.Contains(body, "look up gone.test: no such host") {
		t.Errorf("a name that does not exist: status %d: %s", code, body)
	}
	// A host header does not lead elsewhere.
	r, err := http.NewRequest("GET", "http://good.test:"+port+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s.addr)
	fmt.Fprintf(conn, "GET http://good.test:%s/ HTTP/1.1\r\nHost: other.test\r\n\r\n", port)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.HasPrefix(string(b), "GET good.test:"+port) {
		t.Errorf("with another host header: %s", b)
	}
	want := map[string]bool{"good.test": true, "bad.test": false, "other.test": false}
	got := s.reported()
	if len(got) != len(want) {
		t.Errorf("reported %v", got)
	}
	for _, d := range got {
		if allow, ok := want[d.Host]; !ok || d.Allowed != allow || d.Protocol != ProtocolHTTP || strconv.Itoa(int(d.Port)) != port {
			t.Errorf("reported %+v", d)
		}
	}
	flows := s.Close()
	if len(flows) != 3 || flows[0].Refused != 2 || flows[1].UpBytes < 100 || flows[1].DownBytes < 100 || flows[1].Connections == 0 {
		t.Errorf("flows %+v", flows)
	}
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func TestNotAProxyRequest(t *testing.T) {
	s := open(t, Options{})
	resp, err := http.Get("http://" + s.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(b), "this is a proxy") {
		t.Errorf("status %d: %s", resp.StatusCode, b)
	}
}

func TestConnect(t *testing.T) {
	server, port := hello(t, true)
	s := open(t, Options{Rules: rules(t, []string{"*.good.test:" + port, "127.0.0.0/8"}, nil)})
	c := s.client(t, trust(server))
	if code, body := get(t, c, "https://www.good.test:"+port+"/x"); code != 200 || !strings.HasPrefix(body, "GET www.good.test:"+port+" /x") {
		t.Errorf("status %d: %s", code, body)
	}
	if _, err := c.Get("https://other.test:" + port + "/"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("another host: %v", err)
	}
	if _, err := c.Get("https://www.good.test:1/"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("another port: %v", err)
	}
	got := s.reported()
	if len(got) != 3 || !got[0].Allowed || got[0].Protocol != ProtocolConnect {
		t.Errorf("reported %+v", got)
	}
	c.CloseIdleConnections()
	flows := s.Close()
	if len(flows) != 3 || flows[2].Host != "www.good.test" || flows[2].UpBytes < 200 || flows[2].DownBytes < 500 || flows[2].Connections != 1 {
		t.Errorf("flows %+v", flows)
	}
}

func TestSOCKS(t *testing.T) {
	_, port := hello(t, false)
	s := open(t, Options{Rules: rules(t, []string{"good.test", "127.0.0.1:" + port}, nil)})
	d, err := proxy.SOCKS5("tcp", s.addr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Dial: d.Dial}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for _, host := range []string{"good.test", "127.0.0.1"} {
		if code, body := get(t, c, "http://"+host+":"+port+"/"); code != 200 || !strings.HasPrefix(body, "GET "+host) {
			t.Errorf("%s: status %d: %s", host, code, body)
		}
	}
	if _, err := c.Get("http://other.test:" + port + "/"); err == nil || !strings.Contains(err.Error(), "not allowed by ruleset") {
		t.Errorf("another host: %v", err)
	}
	if _, err := c.Get("http://[::1]:" + port + "/"); err == nil || !strings.Contains(err.Error(), "not allowed by ruleset") {
		t.Errorf("an address: %v", err)
	}
	for name, test := range map[string]struct{ send, want string }{
		"bind":            {"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00\x05\x07"},
		"udp":             {"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00\x05\x07"},
		"address kind":    {"\x05\x01\x00\x05\x01\x00\x09", "\x05\x00\x05\x08"},
		"authentication":  {"\x05\x01\x02", "\x05\xff"},
		"an empty name":   {"\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", "\x05\x00\x05\x02"},
		"SOCKS4":          {"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", ""},
		"another version": {"\x05\x01\x00\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00"},
	} {
		conn := dial(t, s.addr)
		if _, err := conn.Write([]byte(test.send)); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		b, _ := io.ReadAll(conn) // the proxy may close before it has read everything
		if !bytes.HasPrefix(b, []byte(test.want)) || test.want == "" && len(b) > 0 {
			t.Errorf("%s: %q, want %q", name, b, test.want)
		}
	}
}

// TestNamesAreLookedUpOnce checks that the address which was checked is the one that is
// used: a name that changes leads nowhere else.
func TestNamesAreLookedUpOnce(t *testing.T) {
	server, port := hello(t, false)
	secure, securePort := hello(t, true)
	_ = server
	var looked atomic.Int32
	s := open(t, Options{Rules: rules(t, []string{"*", "127.0.0.1"}, nil), TLS: trust(secure), LookUp: func(context.Context, string) ([]netip.Addr, error) {
		if looked.Add(1)%2 == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
	}})
	c := s.client(t, trust(secure))
	for i, address := range []string{"http://a.test:" + port, "https://b.test:" + securePort, "http://c.test:" + port} {
		if code, body := get(t, c, address); code != 200 {
			t.Errorf("%s: status %d: %s", address, code, body)
		}
		if n := looked.Load(); int(n) != 2*i+1 {
			t.Errorf("%s: %d look-ups", address, n)
		}
		if strings.HasPrefix(address, "https") {
			looked.Add(1)
			continue
		}
		if code, body := get(t, c, address); code != 403 || !strings.Contains(body, "169.254.169.254 is a link-local address") {
			t.Errorf("%s after its name changed: status %d: %s", address, code, body)
		}
	}
}

func TestSecrets(t *testing.T) {
	server, port := hello(t, true)
	plain, plainPort := hello(t, false)
	_ = plain
	secret, err := NewSecret("*.good.test:"+port, "authorization", "Bearer s3cr3t")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Rules: rules(t, []string{"*", "127.0.0.1"}, nil), Secrets: []Secret{secret}, TLS: trust(server)})
	c := s.client(t, trust(server))
	// The proxy encrypts, and replaces what the run sends.
	r, err := http.NewRequest("GET", "http://api.good.test:"+port+"/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "mine")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != fmt.Sprintf("GET api.good.test:%s /v1 auth=%q", port, "Bearer s3cr3t") {
		t.Errorf("with a secret: %s", b)
	}
	// Not for another host, not for another port, not in a tunnel.
	for _, address := range []string{"http://other.test:" + plainPort + "/", "http://api.good.test:" + plainPort + "/", "https://api.good.test:" + port + "/"} {
		if code, body := get(t, c, address); code != 200 || !strings.HasSuffix(body, `auth=""`) {
			t.Errorf("%s: status %d: %s", address, code, body)
		}
	}
	for _, d := range s.reported() {
		if strings.Contains(fmt.Sprint(d), "s3cr3t") {
			t.Errorf("reported %v", d)
		}
	}
	for _, bad := range [][3]string{{"*", "A", "v"}, {"a.test", "", "v"}, {"a.test", "A B", "v"}, {"a.test", "A", ""}, {"a.test", "A", "v\r\nB: w"}, {"a.test", "A", strings.Repeat("v", MaxSecret+1)}} {
		if _, err := NewSecret(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("the secret %.60q is taken", bad)
		}
	}
}

func TestAsks(t *testing.T) {
	_, port := hello(t, false)
	var asked atomic.Int32
	answers := make(chan bool)
	s := open(t, Options{Rules: rules(t, []string{"127.0.0.1"}, []string{"denied.test"}), Ask: func(ctx context.Context, t Target) (allow bool, reason string, final bool) {
		if asked.Add(1); t.Host == "later.test" {
			return false, "ask later", false
		}
		select {
		case yes := <-answers:
			return yes, "a person said no", true
		case <-ctx.Done():
			return false, "", false
		}
	}})
	c := s.client(t, nil)
	var all sync.WaitGroup
	for range 3 { // at once
		all.Go(func() {
			if code, body := get(t, c, "http://yes.test:"+port+"/"); code != 200 {
				t.Errorf("allowed: status %d: %s", code, body)
			}
		})
	}
	answers <- true
	all.Wait()
	go func() { answers <- false }()
	for range 2 {
		if code, body := get(t, c, "http://no.test:"+port+"/"); code != 403 || !strings.Contains(body, "a person said no") {
			t.Errorf("refused: status %d: %s", code, body)
		}
	}
	if code, _ := get(t, c, "http://denied.test:"+port+"/"); code != 403 {
		t.Errorf("denied: status %d", code)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	for n := range int32(2) { // an answer that is not final holds for one connection
		if code, body := get(t, c, "http://later.test:"+port+"/"); code != 403 || !strings.Contains(body, "ask later") || asked.Load() != 3+n {
			t.Errorf("later: status %d: %s; asked %d times", code, body, asked.Load())
		}
	}
}

// TestIdleTunnelsEnd checks that a tunnel without bytes ends, and one with bytes in one
// direction does not.
func TestIdleTunnelsEnd(t *testing.T) {
	// On a busy machine a tunnel may be idle for long enough before its bytes come.
	for idle := 20 * time.Millisecond; ; idle *= 4 {
		got, flows := idleTunnel(t, idle)
		if got == "hello" {
			if len(flows) != 1 || flows[0].DownBytes != 5 || flows[0].UpBytes != 0 {
				t.Errorf("flows %+v", flows)
			}
			return
		}
		if idle > time.Minute {
			t.Fatalf("with %v to be idle the tunnel carried %q", idle, got)
		}
	}
}

// idleTunnel writes into one end of a tunnel, and reads from the other one until the
// tunnel ends.
func idleTunnel(t *testing.T, idle time.Duration) (string, []Flow) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := open(t, Options{Rules: rules(t, []string{"127.0.0.1"}, nil), Idle: idle})
	client := dial(t, s.addr)
	fmt.Fprintf(client, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := bufio.NewReader(client)
	if resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	_, _ = server.Write([]byte("hello")) // unless the tunnel has ended
	b, _ := io.ReadAll(r)                // however it ends
	return string(b), s.Close()
}

// TestTunnelsCarryEverything sends much in both directions through a tunnel, with bytes
// right behind the request, and ends one direction after the other.
func TestTunnelsCarryEverything(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const size = 8 << 20
	up, down := bytes.Repeat([]byte("up"), size/2), bytes.Repeat([]byte("down"), size/4)
	received := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c) // until the run ends its direction
		received <- b
		_, _ = c.Write(down)
	}()
	s := open(t, Options{Rules: rules(t, []string{"127.0.0.1"}, nil)})
	client := dial(t, s.addr)
	go func() {
		fmt.Fprintf(client, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
		_, _ = client.Write(up)
		_ = client.CloseWrite()
	}()
	r := bufio.NewReader(client)
	if resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	if b := <-received; !bytes.Equal(b, up) {
		t.Errorf("%d bytes came up", len(b))
	}
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, down) {
		t.Errorf("%d bytes came down: %v", len(b), err)
	}
	flows := s.Close()
	if len(flows) != 1 || flows[0].UpBytes != size || flows[0].DownBytes != size {
		t.Errorf("flows %+v", flows)
	}
}

// TestCloseEndsEverything closes a proxy with a tunnel, a request and an ask under way.
func TestCloseEndsEverything(t *testing.T) {
	waits := make(chan struct{}, 2)
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waits <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(release)
	s := open(t, Options{Rules: rules(t, []string{"127.0.0.1"}, nil), Ask: func(ctx context.Context, _ Target) (bool, string, bool) {
		waits <- struct{}{}
		<-ctx.Done()
		return false, "", false
	}})
	c := s.client(t, nil)
	var all sync.WaitGroup
	for _, address := range []string{slow.URL, "http://asked.test/"} {
		all.Go(func() {
			if resp, err := c.Get(address); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	tunnel := dial(t, s.addr)
	fmt.Fprintf(tunnel, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", slow.Listener.Addr())
	if resp, err := http.ReadResponse(bufio.NewReader(tunnel), &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	<-waits
	<-waits
	s.Close()
	all.Wait()
	if _, err := io.ReadAll(tunnel); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	s.Close() // again
}
