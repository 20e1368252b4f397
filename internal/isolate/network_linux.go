//go:build amd64 || arm64

package isolate

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/egress"
)

// The answers to an ask about a host.
const (
	answerAllow = "allow"
	answerDeny  = "deny"
)

// Network is the way of an isolated run to the network: a proxy that allows hosts by
// name.
type Network struct {
	proxy *egress.Proxy
	addr  string

	ready chan struct{} // closed by Attach
	ask   AskFunc

	mu    sync.Mutex
	tell  func(spool.Notice)
	early []spool.Notice // from before Attach
	ended bool
}

// newNetwork serves a listener in the network of a run.
func newNetwork(gateway net.Listener, p *Policy, asks bool) (*Network, error) {
	n := &Network{addr: gateway.Addr().String(), ready: make(chan struct{})}
	o := egress.Options{Rules: p.Rules, Report: n.report, Forward: p.Proxy}
	for _, s := range p.secrets {
		secret, err := s.read()
		if err != nil {
			return nil, err
		}
		o.Secrets = append(o.Secrets, secret)
	}
	if asks {
		o.Ask = n.decide
	}
	n.proxy = egress.New(o)
	n.proxy.Serve(gateway)
	return n, nil
}

// Attach has the notices about the network go to tell, which must not wait, and the
// asks about hosts to ask, which waits for the answer or the end of its context. With
// a nil ask hosts that no rule names are refused.
func (n *Network) Attach(tell func(spool.Notice), ask AskFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, notice := range n.early {
		tell(notice)
	}
	n.tell, n.early, n.ask = tell, nil, ask
	close(n.ready)
}

// report makes a notice of a decision.
func (n *Network) report(d egress.Decision) {
	at := net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	notice := spool.Notice{Code: NoticeHost, Text: "network: allowed " + at, Level: "debug"}
	if !d.Allowed {
		notice.Level = "warning"
		notice.Text = fmt.Sprintf("network: refused %s: %s", at, d.Reason)
	}
	notice.Data, _ = json.Marshal(d) // a plain struct always encodes
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.ended:
	case n.tell == nil:
		n.early = append(n.early, notice)
	default:
		n.tell(notice)
	}
}

// decide asks about a host.
func (n *Network) decide(ctx context.Context, t egress.Target) (allow bool, reason string, final bool) {
	select {
	case <-n.ready:
	case <-ctx.Done():
		return false, "", false
	}
	if n.ask == nil {
		return false, "no rule allows it", true
	}
	q := spool.Ask{Kind: AskNetwork, Name: t.String(), Prompt: fmt.Sprintf("Allow %s for this run?", t), Options: []spool.AskOption{
		{ID: answerAllow, Label: "allow it for this run", Kind: "allow_always"}, {ID: answerDeny, Label: "refuse it", Kind: "reject_always"}}}
	q.Data, _ = json.Marshal(t) // a plain struct always encodes
	if deadline, ok := ctx.Deadline(); ok {
		q.Deadline = deadline.UTC().Truncate(time.Millisecond)
	}
	a, err := n.ask(ctx, q)
	switch {
	case err != nil:
		return false, err.Error(), false
	case a.Error != nil:
		return false, a.Error.Message, true
	}
	switch chosen(a.Data) {
	case answerAllow, "allow_session": // the word of package agent
		return true, "", true
	}
	return false, "it was refused when asked", true
}

// AskFunc puts an ask about a host and waits for the answer, or the end of the context.
type AskFunc func(context.Context, spool.Ask) (spool.Answer, error)

// Once returns an AskFunc that asks about each host and port once, for a run with
// several processes, each of which has a proxy.
func (ask AskFunc) Once() AskFunc {
	var mu sync.Mutex
	answers := make(map[string]spool.Answer)
	return func(ctx context.Context, q spool.Ask) (spool.Answer, error) {
		mu.Lock()
		a, known := answers[q.Name]
		full := len(answers) >= egress.MaxAsks
		mu.Unlock()
		switch {
		case known:
			return a, nil
		case full:
			return spool.Answer{Error: &spool.AnswerError{Message: fmt.Sprintf("no rule allows it, and the run has asked about %d hosts", egress.MaxAsks)}}, nil
		}
		a, err := ask(ctx, q)
		if err == nil {
			mu.Lock()
			answers[q.Name] = a
			mu.Unlock()
		}
		return a, err
	}
}

// chosen returns what an answer chooses: it is a string, or an object with a choice, as
// for other asks.
func chosen(data json.RawMessage) string {
	var option string
	if json.Unmarshal(data, &option) == nil {
		return option
	}
	var d struct {
		Choice string `json:"choice"`
	}
	if json.Unmarshal(data, &d) != nil {
		return ""
	}
	return d.Choice
}

// Close ends every connection. The first call returns a notice with what went to each
// host and port, if there was any, and there are no other notices after it.
func (n *Network) Close() (spool.Notice, bool) {
	flows := n.proxy.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended || len(flows) == 0 {
		n.ended = true
		return spool.Notice{}, false
	}
	n.ended = true
	var texts []string
	for _, f := range flows {
		at := "other hosts"
		if f.Host != "" {
			at = net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		}
		if f.Connections == 0 {
			texts = append(texts, at+" refused")
			continue
		}
		texts = append(texts, fmt.Sprintf("%s %d bytes up, %d down", at, f.UpBytes, f.DownBytes))
	}
	if len(texts) > maxTrafficText {
		texts = append(texts[:maxTrafficText:maxTrafficText], fmt.Sprintf("and %d more", len(flows)-maxTrafficText))
	}
	notice := spool.Notice{Code: NoticeTraffic, Level: "debug", Text: "network: " + strings.Join(texts, "; ")}
	notice.Data, _ = json.Marshal(flows) // plain structs always encode
	return notice, true
}

// maxTrafficText is how many hosts the text of a notice names; its data has all.
const maxTrafficText = 8

// proxyVariables tell programs about a proxy.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"}

// withAddress has the variables that name a proxy name the address at which the run
// reaches it.
func (n *Network) withAddress(env []string, proxy string) []string {
	list := slices.Clone(env)
	for i, kv := range list {
		if before, ok := strings.CutSuffix(kv, "://"+proxy); ok {
			list[i] = before + "://" + n.addr
		}
	}
	return list
}

// withProxy tells programs to use the proxy, except for what listens in the network of
// the run itself.
func (n *Network) withProxy(env []string, rules *egress.Rules) []string {
	set := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for _, name := range proxyVariables {
		set[name] = "http://" + n.addr
	}
	var own []string
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if !rules.Names(host) { // else the machine's own is meant
			own = append(own, host)
		}
	}
	set["NO_PROXY"] = strings.Join(own, ",")
	set["no_proxy"] = set["NO_PROXY"]
	list := make([]string, 0, len(env)+len(set))
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if _, ok := set[name]; !ok {
			list = append(list, kv)
		}
	}
	for _, name := range append([]string{"NO_PROXY", "no_proxy", "NODE_USE_ENV_PROXY"}, proxyVariables...) {
		list = append(list, name+"="+set[name])
	}
	return list
}
