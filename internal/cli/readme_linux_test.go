package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestReadmeCurl has bash run the lines of README.md that call curl, as they are
// written there, against a real server.
func TestReadmeCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(readme)) {
		if command, ok := strings.CutPrefix(line, "$ curl "); ok {
			lines = append(lines, "curl "+command)
		}
	}
	if len(lines) != 5 {
		t.Fatalf("README.md has %d lines with curl: %q", len(lines), lines)
	}
	state := servertest.StateDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, err := servertest.StartCommand(context.Background(), servertest.Binary(t), "--state", state, "serve", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	token, err := os.ReadFile(filepath.Join(state, "server-token"))
	if err != nil {
		t.Fatal(err)
	}
	c := &apiClient{t, server.URL, strings.TrimSpace(string(token))}
	c.askAt("asker", 19)
	runs := []string{"", "job", "job", "job", "asker"}
	want := [][]string{
		{`"id":"job"`, `"state":"closed"`, `"code":0`},
		{"event: info\n", "id: 1\n", `"text":"error: hi\n"`, "event: end\n", `"reason":"closed"`},
		{`"n":1`, `"text":"error: hi"`, `"start":0,"end":5`},
		{"error: hi\n"},
		{"{}\n"},
	}
	for i, line := range lines {
		cmd := exec.CommandContext(ctx, "bash", "-c", line)
		cmd.Env = append(os.Environ(), "T="+c.token, "U="+c.url, "R="+runs[i])
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s%v: %s", line, err, out)
		}
		for _, text := range want[i] {
			if !bytes.Contains(out, []byte(text)) {
				t.Errorf("%sprints\n%s\nwithout %q", line, out, text)
			}
		}
	}
	if turn := c.send("GET", "/v1/runs/asker/turns/18?wait_ms=50000", ""); !bytes.Contains(turn, []byte(`"outcome":"ok"`)) {
		t.Errorf("the answered cell is %s", turn)
	}
}

// apiClient sends requests to a server.
type apiClient struct {
	t          *testing.T
	url, token string
}

// send sends JSON and returns the answer, which must be a success.
func (c *apiClient) send(method, path, body string) []byte {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		c.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, b, err)
	}
	return b
}

// askAt starts a kernel and has it ask something with the event of that number.
func (c *apiClient) askAt(id string, seq uint64) {
	c.t.Helper()
	var info struct {
		Last uint64 `json:"last"`
	}
	decode := func(b []byte) {
		if err := json.Unmarshal(b, &info); err != nil {
			c.t.Fatal(err)
		}
	}
	decode(c.send("POST", "/v1/runs", `{"id":"`+id+`","engine":"kernel","cwd":"/","config":{"input":"ask"}}`))
	for info.Last+2 < seq {
		code := "pass" // two events: the input, and its end
		if (seq-info.Last)%2 != 0 {
			code = "1" // and a result
		}
		c.send("POST", "/v1/runs/"+id+"/turns?wait_ms=50000", `{"cell":{"code":"`+code+`"}}`)
		decode(c.send("GET", "/v1/runs/"+id, ""))
	}
	c.send("POST", "/v1/runs/"+id+"/turns", `{"cell":{"code":"answer = input('? ')"}}`)
	for {
		decode(c.send("GET", "/v1/runs/"+id+"?wait_ms=50000&after="+strconv.FormatUint(seq-1, 10), ""))
		if info.Last >= seq {
			return
		}
	}
}
