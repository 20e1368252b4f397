package execserver_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// tokenKind makes an authenticator and tokens of one kind for subjects.
type tokenKind struct {
	name string
	auth func(t *testing.T) access.Authenticator
	// token returns a token of a subject that expires after a time.
	token func(t *testing.T, subject string, expires time.Duration) string
}

const sharedSecret = "0123456789abcdef0123456789abcdef"

// tokenKinds are the kinds of token that name a subject.
func tokenKinds(t *testing.T) []tokenKind {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(sharedSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	path, made := filepath.Join(dir, access.TokenFileName), 0
	fromFile := func(t *testing.T, subject string, expires time.Duration) string {
		made++
		_, token, err := access.CreateToken(path, access.Token{
			Name: fmt.Sprint(made), Subject: subject, Expires: time.Now().Add(expires),
			Scopes: append(access.DefaultScopes(), access.FilesOf("/")),
		})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	fromFile(t, "first", time.Hour) // makes the file
	return []tokenKind{
		{"signed", func(t *testing.T) access.Authenticator {
			a, err := access.NewBearer(access.BearerOptions{Mode: access.ModeSignedBearerToken, SharedSecretFile: secret, MaxClockSkew: new(time.Duration)})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}, func(_ *testing.T, subject string, expires time.Duration) string {
			part := base64.RawURLEncoding.EncodeToString
			claims := fmt.Sprintf(`{"sub":%q,"exp":%f}`, subject, float64(time.Now().Add(expires).UnixMicro())/1e6)
			signed := part([]byte(`{"alg":"HS256"}`)) + "." + part([]byte(claims))
			mac := hmac.New(sha256.New, []byte(sharedSecret))
			mac.Write([]byte(signed))
			return signed + "." + part(mac.Sum(nil))
		}},
		{"file", func(t *testing.T) access.Authenticator {
			a, err := access.OpenTokens(path)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}, fromFile},
	}
}

// dialAs connects with a token, without a handshake.
func dialAs(t *testing.T, url, token string) *runClient {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(rpc.MaxMessage)
	return &runClient{T: t, conn: c}
}

// initialize performs the handshake of a session, a new one if resume is empty.
func (c *runClient) initialize(resume string) (session string, err error) {
	c.Helper()
	params := map[string]any{"clientName": "test"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	var r struct{ SessionID string }
	if err := c.call("initialize", params, &r); err != nil {
		return "", err
	}
	c.notify("initialized", nil)
	return r.SessionID, nil
}

// ends waits until the server closes the connection.
func (c *runClient) ends() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	for {
		if _, _, err := c.conn.Read(ctx); err != nil {
			if ctx.Err() != nil {
				c.Fatal("the server does not close the connection")
			}
			return
		}
	}
}

func startProcess(c *runClient, id, script string) {
	c.Helper()
	c.must("process/start", map[string]any{
		"processId": id, "argv": []string{"/bin/sh", "-c", script}, "cwd": "file:///", "env": map[string]string{}, "tty": false,
	}, nil)
}

// One subject cannot resume the session of another, neither from the same server
// nor from the next one on the same backend.
func TestSubjectsCannotResumeEachOthersSessions(t *testing.T) {
	for _, kind := range tokenKinds(t) {
		t.Run(kind.name, func(t *testing.T) {
			h := newHost(t)
			alice, bob := kind.token(t, "alice", time.Hour), kind.token(t, "bob", time.Hour)
			options := execserver.Options{Backend: h, Auth: kind.auth(t), Keep: true}
			url := serveBackend(t, options)
			first := dialAs(t, url, alice)
			session, err := first.initialize("")
			if err != nil {
				t.Fatal(err)
			}
			startProcess(first, "p", "sleep 1000")
			first.conn.CloseNow()

			for name, url := range map[string]string{"same server": url, "next server": serveBackend(t, options)} {
				for _, id := range []string{session, "alice/" + session, "bob/" + session} {
					if _, err := dialAs(t, url, bob).initialize(id); err == nil || !strings.Contains(err.Error(), "unknown session id "+id) {
						t.Errorf("%s: bob resumes %s: %v", name, id, err)
					}
				}
				second := dialAs(t, url, alice)
				if _, err := second.initialize(session); err != nil {
					t.Errorf("%s: alice: %v", name, err)
					continue
				}
				second.must("process/read", map[string]any{"processId": "p", "waitMs": 0}, nil)
				second.conn.CloseNow()
			}
		})
	}
}

func TestConnectionEndsWithItsToken(t *testing.T) {
	t.Parallel() // it waits
	for _, kind := range tokenKinds(t) {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			url, _ := newServer(t, execserver.Options{Auth: kind.auth(t)})
			const lives = 5 * time.Second // enough for a handshake on a busy machine
			before := time.Now()
			short := dialAs(t, url, kind.token(t, "alice", lives))
			if _, err := short.initialize(""); err != nil {
				t.Fatal(err)
			}
			long := dialAs(t, url, kind.token(t, "alice", time.Hour))
			short.ends()
			if lived := time.Since(before); lived < lives {
				t.Errorf("the connection ended after %v", lived)
			}
			if _, err := long.initialize(""); err != nil {
				t.Errorf("another connection: %v", err)
			}
		})
	}
	t.Run("capability", func(t *testing.T) {
		digest := sha256.Sum256([]byte("secret"))
		auth, err := access.NewBearer(access.BearerOptions{Mode: access.ModeCapabilityToken, TokenSHA256: fmt.Sprintf("%x", digest)})
		if err != nil {
			t.Fatal(err)
		}
		url, _ := newServer(t, execserver.Options{Auth: auth})
		if _, err := dialAs(t, url, "secret").initialize(""); err != nil {
			t.Error(err)
		}
	})
}

func TestRevokedTokenEndsItsConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), access.TokenFileName)
	var secrets []string
	for _, name := range []string{"a", "b"} {
		_, secret, err := access.CreateToken(path, access.Token{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	url, _ := newServer(t, execserver.Options{Auth: tokens})
	a, b := dialAs(t, url, secrets[0]), dialAs(t, url, secrets[1])
	if _, err := a.initialize(""); err != nil {
		t.Fatal(err)
	}
	if _, err := access.RevokeToken(path, "a"); err != nil {
		t.Fatal(err)
	}
	a.ends()
	if _, err := b.initialize(""); err != nil {
		t.Errorf("another token: %v", err)
	}
	_, answer, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secrets[0]}}})
	if err == nil || answer == nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked token: %v", err)
	}
}

// Clients cannot set the labels by which the server knows whose a run is.
func TestClientsCannotSetReservedLabels(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	c := dialRuns(t, url)
	for _, label := range []string{access.LabelSubject, "exec-server.session", "exec-server.server"} {
		spec := script("true")
		spec.Labels = map[string]string{label: "x"}
		var e *rpc.Error
		if err := c.call("run/start", spec, nil); !errors.As(err, &e) || !strings.Contains(string(e.Data), "denied") {
			t.Errorf("%s: %v", label, err)
		}
	}
}

// Ten thousand wrong tokens do not slow a client with a right one, neither on its
// connection nor when it connects, although all come from one address.
func TestWrongTokensDoNotSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 2,000 requests")
	}
	path := filepath.Join(t.TempDir(), access.TokenFileName)
	_, secret, err := access.CreateToken(path, access.Token{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	url, _ := newServer(t, execserver.Options{Auth: tokens})
	c := dialAs(t, url, secret)
	if _, err := c.initialize(""); err != nil {
		t.Fatal(err)
	}
	id := c.start(script("true"))
	median := func(n int, do func()) time.Duration {
		took := make([]time.Duration, n)
		for i := range took {
			before := time.Now()
			do()
			took[i] = time.Since(before)
		}
		slices.Sort(took)
		return took[n/2]
	}
	stat := func() { c.must("run/stat", map[string]any{"run": id}, nil) }
	dial := func() { dialAs(t, url, secret).conn.CloseNow() }
	quietStat, quietDial := median(200, stat), median(20, dial)

	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	var left atomic.Int64
	left.Store(2000)
	var wg sync.WaitGroup
	statuses := make([]map[int]int, access.MaxWaiting+4)
	for i := range statuses { // all but four wait for slow answers
		statuses[i] = make(map[int]int)
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(url, "ws://", "http://", 1)+"/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header = http.Header{"Connection": {"Upgrade"}, "Authorization": {"Bearer spool_wrong"}}
				answer, err := transport.RoundTrip(r)
				if err != nil {
					return // the test is over
				}
				answer.Body.Close()
				statuses[i][answer.StatusCode]++
			}
		})
	}
	busyStat, busyDial, rounds := time.Duration(0), time.Duration(0), 0
	for ; rounds == 0 || left.Load() > 0; rounds++ {
		busyStat, busyDial = busyStat+median(20, stat), busyDial+median(5, dial)
	}
	cancel()
	wg.Wait()
	transport.CloseIdleConnections()
	all := make(map[int]int)
	for _, s := range statuses {
		for status, n := range s {
			all[status] += n
		}
	}
	if all[http.StatusUnauthorized] < access.FreeFailures || all[http.StatusTooManyRequests] == 0 || len(all) != 2 {
		t.Errorf("statuses %v", all)
	}
	busyStat, busyDial = busyStat/time.Duration(rounds), busyDial/time.Duration(rounds)
	t.Logf("stat %v (quiet %v), dial %v (quiet %v), statuses %v", busyStat, quietStat, busyDial, quietDial, all)
	// The clients of the wrong tokens compete for the same processors. A client
	// that is slowed like them waits for 5 s.
	const noise = 2 * time.Second
	if busyStat > 10*quietStat+noise || busyDial > 10*quietDial+noise {
		t.Errorf("stat takes %v instead of %v, dial %v instead of %v", busyStat, quietStat, busyDial, quietDial)
	}
}
