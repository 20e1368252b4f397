package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/python"
)

// The services a host program can offer, by the kind of their ask.
const (
	AskFSRead     = "fs.read"
	AskFSWrite    = "fs.write"
	AskFSStat     = "fs.stat"
	AskFSReadDir  = "fs.readdir"
	AskFSMkdir    = "fs.mkdir"
	AskSubprocess = "subprocess.run"
)

// never is longer than any wait.
const never = time.Duration(math.MaxInt64)

// ask passes an ask of a script to the host program and waits for the answer.
func (s *session) ask(ctx context.Context, t *turn, kind string, payload []byte) guest.Reply {
	if reason := denies(s.config, kind, payload); reason != "" {
		return failed(guest.CodeDenied, reason)
	}
	switch {
	case len(payload) > MaxAskBytes:
		return failed("E2BIG", fmt.Sprintf("%s: a payload of %d bytes exceeds the limit of %d", kind, len(payload), MaxAskBytes))
	case !json.Valid(payload):
		return failed("EINVAL", kind+": the payload is not JSON")
	}
	if !t.Value.countAsk(len(payload)) {
		return failed("EDQUOT", fmt.Sprintf("%s: a turn has at most %d asks of %d bytes together", kind, MaxAsks, MaxAsksBytes))
	}
	t.Value.output.sync()
	limit := limits.Milliseconds(s.config.Limits.AskMs)
	ask := spool.Ask{Kind: kind, Data: payload, Deadline: time.Now().UTC().Add(limit)}
	if kind == spool.AskInput { // a person may take any time
		limit, ask.Deadline, ask.Data = never, time.Time{}, nil
		var line struct {
			Prompt string `json:"prompt"`
			Secret bool   `json:"secret"`
		}
		if err := strict.Unmarshal(payload, &line, "the payload"); err != nil {
			return failed("EINVAL", "input: "+err.Error())
		}
		ask.Prompt, ask.Secret = line.Prompt, line.Secret
	}
	answered := make(chan spool.Answer, 1)
	seq, _, err := s.turns.Ask(spool.Event{Turn: t.Seq}, ask, answered)
	if err != nil {
		s.logged()
		return failed(guest.CodeFailed, "the run is over")
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case a := <-answered:
			t.Value.active()
			return reply(a)
		case <-timer.C:
			text := fmt.Sprintf("%s timed out after %dms", kind, limit.Milliseconds())
			if s.turns.CloseAsk(seq, spool.Notice{Text: text}) {
				return failed(guest.CodeTimedOut, text)
			} // else the answer came in time and is in the channel
		case <-ctx.Done(): // the end of the turn closes it
			return failed(guest.CodeFailed, "the script was stopped")
		}
	}
}

func reply(a spool.Answer) guest.Reply {
	if a.Error == nil {
		return guest.Reply{Value: a.Data}
	}
	code := a.Error.Code
	if code == "" {
		code = guest.CodeFailed
	}
	return failed(code, a.Error.Message)
}

func failed(code, message string) guest.Reply {
	return guest.Reply{Error: &guest.ReplyError{Code: code, Message: message}}
}

// denies returns why an ask is refused, or "" if it may go to the host program.
func denies(c *python.SandboxConfig, kind string, payload []byte) string {
	if kind == "" || len(kind) > 128 {
		return "an ask needs a kind of at most 128 bytes"
	}
	if !offers(c, kind) {
		switch kind {
		case python.AskHTTP, python.AskDNS:
			return kind + ": network access is not offered to this sandbox"
		case AskSubprocess:
			return kind + ": no processes are offered to this sandbox"
		}
		return kind + " is not offered to this sandbox"
	}
	if len(c.Hosts) == 0 || kind != python.AskHTTP && kind != python.AskDNS {
		return ""
	}
	host, err := askedHost(c, kind, payload)
	if err != nil {
		return kind + ": " + err.Error()
	}
	if !c.AllowsHost(host) {
		return fmt.Sprintf("%s: network access to %q is not offered to this sandbox", kind, host)
	}
	return ""
}

// askedHost returns the host that a network ask names. The payload goes to the
// host program as it is, so it must have one reading: only known keys, in their
// exact case, each at most once.
func askedHost(c *python.SandboxConfig, kind string, payload []byte) (string, error) {
	if kind == python.AskDNS {
		var lookup struct {
			Hostname string `json:"hostname"`
			Family   int    `json:"family"`
		}
		err := strict.Unmarshal(payload, &lookup, "the payload")
		return lookup.Hostname, err
	}
	var request struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body_base64"`
	}
	if err := strict.Unmarshal(payload, &request, "the payload"); err != nil {
		return "", err
	}
	u, err := url.Parse(request.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("not an http URL")
	}
	if c.AllowsHost(u.Host) {
		return u.Host, nil
	}
	return u.Hostname(), nil
}
