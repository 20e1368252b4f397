package execserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/wire/rpc"
)

const (
	// decisionMargin is what the client has in addition to the time for a decision
	// that it asked for.
	decisionMargin = 5 * time.Second
	// maxDecisionWait is how long a decision about a host is waited for at most.
	maxDecisionWait = 24 * time.Hour
	// maxUnanswered is how many asks of a process a client may leave unanswered: what
	// would be asked beyond is refused.
	maxUnanswered = 256
	// maxDomains is how many domains a network proxy has rules about.
	maxDomains = 1000
	// maxProxiedID is how long the id of a process may be whose proxy asks.
	maxProxiedID = 256
)

// proxyLaunch is what a client wants of the network proxy of a process.
type proxyLaunch struct {
	socks   bool
	local   bool // addresses that are not public may be reached
	domains domains
	wait    time.Duration // for a decision of the client; zero if it is not asked
}

// parseProxyLaunch reads a networkProxy object. It returns nil if there is none. What
// this server does not do is refused, unless the process is only allowed less by that.
func parseProxyLaunch(raw json.RawMessage, process string) (*proxyLaunch, error) {
	if raw = bytes.TrimSpace(raw); isNull(raw) {
		return nil, nil
	}
	if runtime.GOOS != "linux" {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "this server cannot enforce a managed network: it does not advertise networkProxyLaunch")
	}
	var list []json.RawMessage
	if raw[0] == '[' && json.Unmarshal(raw, &list) == nil {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "invalid length %d, expected struct RemoteNetworkProxyLaunchConfig with 5 elements", len(list))
	}
	launch, err := newObject(raw, "struct RemoteNetworkProxyLaunchConfig", false)
	if err != nil {
		return nil, err
	}
	if raw, err = launch.need("proxy"); err != nil {
		return nil, err
	}
	proxy, err := newObject(raw, "struct RemoteNetworkProxyConfig", false)
	if err != nil {
		return nil, err
	}
	l := new(proxyLaunch)
	if err := l.parseProxy(proxy); err != nil {
		return nil, err
	}
	for _, name := range []string{"environmentId", "executionId"} {
		if raw := launch.member(name); !isNull(raw) {
			if _, err := launch.text(raw, "a string"); err != nil {
				return nil, err
			}
		}
	}
	if err := l.parseWait(launch); err != nil {
		return nil, err
	}
	if l.wait > 0 && (process == "" || len(process) > maxProxiedID) {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "a process whose network proxy asks needs an id of 1 to %d bytes", maxProxiedID)
	}
	if err := launch.only("networkProxy", "proxy", "auditMetadata", "environmentId", "executionId", "policyDecisionTimeoutMs"); err != nil {
		return nil, err
	}
	return l, proxy.only("networkProxy.proxy", "enabled", "enableSocks5", "enableSocks5Udp", "allowUpstreamProxy",
		"dangerouslyAllowAllUnixSockets", "mode", "domains", "unixSockets", "allowLocalBinding")
}

func (l *proxyLaunch) parseProxy(o *object) error {
	var enabled, udp, upstream, sockets bool
	for _, m := range []struct {
		name string
		to   *bool
	}{{"enabled", &enabled}, {"enableSocks5", &l.socks}, {"enableSocks5Udp", &udp}, {"allowUpstreamProxy", &upstream}, {"dangerouslyAllowAllUnixSockets", &sockets}} {
		if err := o.bool(m.name, m.to); err != nil {
			return err
		}
	}
	raw, err := o.need("mode")
	if err != nil {
		return err
	}
	mode, err := o.text(raw, "string or map")
	if err != nil {
		return err
	}
	if mode != "full" && mode != "limited" {
		return unknownVariant(mode, "`limited` or `full`")
	}
	named, err := o.permissions("domains", "`none`, `allow`, `deny`")
	if err != nil {
		return err
	}
	paths, err := o.permissions("unixSockets", "`allow`, `none`")
	if err != nil {
		return err
	}
	if err := o.bool("allowLocalBinding", &l.local); err != nil {
		return err
	}
	switch {
	case !enabled:
		return invalidProxy("executor-local network proxy launch requires an enabled proxy")
	case mode == "limited":
		return invalidProxy("this server does not support the mode limited; use full")
	case sockets, slices.ContainsFunc(paths, func(p namedPermission) bool { return p.value == "allow" }):
		return invalidProxy("this server does not support unix sockets")
	case upstream && upstreamProxy() != "":
		return invalidProxy("this server does not support an upstream proxy, and its environment has %s; set allowUpstreamProxy to false", upstreamProxy())
	}
	l.domains, err = parseDomains(named)
	return err
}

// upstreamProxy returns the name of a variable of this server that names a proxy.
func upstreamProxy() string {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

func (l *proxyLaunch) parseWait(o *object) error {
	raw := o.member("policyDecisionTimeoutMs")
	if isNull(raw) {
		return nil
	}
	var ms uint64
	if json.Unmarshal(raw, &ms) != nil {
		if c := raw[0]; c == '-' || c >= '0' && c <= '9' {
			return rpc.Errorf(rpc.CodeInvalidParams, "invalid number")
		}
		return o.unexpected(raw, "u64")
	}
	if ms == 0 {
		return rpc.Errorf(rpc.CodeInvalidParams, "network policy decision callback timeout must be nonzero")
	}
	l.wait = maxDecisionWait
	if ms < math.MaxInt64/uint64(time.Millisecond) {
		l.wait = min(l.wait, time.Duration(ms)*time.Millisecond+decisionMargin)
	}
	return nil
}

func invalidProxy(format string, args ...any) error {
	return rpc.Errorf(rpc.CodeInvalidParams, "invalid network proxy config: %s", fmt.Sprintf(format, args...))
}

// bool reads a member that must be there.
func (o *object) bool(name string, to *bool) error {
	raw, err := o.need(name)
	if err != nil {
		return err
	}
	return o.decode(raw, to, "a boolean")
}

// namedPermission is a permission by name.
type namedPermission struct{ name, value string }

// permissions reads a member that maps names to permissions, in the order of the names.
func (o *object) permissions(name, values string) ([]namedPermission, error) {
	raw := o.member(name)
	if isNull(raw) {
		return nil, nil
	}
	var all map[string]json.RawMessage
	if err := o.decode(raw, &all, "a map"); err != nil {
		return nil, err
	}
	var list []namedPermission
	for name, raw := range all {
		value, err := o.text(raw, "string or map")
		if err != nil {
			return nil, err
		}
		if !strings.Contains(values, "`"+value+"`") {
			return nil, unknownVariant(value, "one of "+values)
		}
		list = append(list, namedPermission{name, value})
	}
	slices.SortFunc(list, func(a, b namedPermission) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// only refuses members that are not known: they may restrict what the process may do.
// A member without a value asks for nothing.
func (o *object) only(what string, known ...string) error {
	for name, raw := range o.members {
		if slices.Contains(known, name) || slices.Contains([]string{"", "null", "false", "[]", "{}"}, string(bytes.TrimSpace(raw))) {
			continue
		}
		return invalidProxy("this server does not support the member %.80q of %s", name, what)
	}
	return nil
}

// domains are the hosts that a process may reach, and those that it may not.
type domains struct{ allow, deny []domain }

// domain is a pattern of hosts: example.org, *.example.org for those below it,
// **.example.org for both, or * for all.
type domain struct {
	name        string // empty for all
	self, below bool
}

func parseDomains(list []namedPermission) (d domains, err error) {
	if len(list) > maxDomains {
		return d, invalidProxy("%d domains are named, and at most %d can be", len(list), maxDomains)
	}
	for _, p := range list {
		one, ok := parseDomain(p.name)
		switch {
		case strings.TrimSpace(p.name) == "":
			return d, invalidProxy("domain pattern is empty")
		case !ok:
			return d, invalidProxy("unsupported domain pattern syntax: %s", p.name)
		case p.value == "deny" && one.name == "":
			return d, invalidProxy("invalid value for network.denied_domains: %s (allowed exact hosts or scoped wildcards like *.example.com or **.example.com)", p.name)
		case p.value == "deny":
			d.deny = append(d.deny, one)
		case p.value == "allow":
			d.allow = append(d.allow, one)
		}
	}
	return d, nil
}

func parseDomain(text string) (d domain, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "*" {
		return domain{self: true, below: true}, true
	}
	d.self = true
	if name, ok := strings.CutPrefix(text, "**."); ok {
		text, d.below = name, true
	} else if name, ok := strings.CutPrefix(text, "*."); ok {
		text, d.self, d.below = name, false, true
	}
	d.name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ".")
	for _, c := range []byte(d.name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' && (c != ':' || text[0] != '[') {
			return d, false
		}
	}
	return d, d.name != ""
}

func (d domain) matches(host string) bool {
	return d.name == "" || d.self && host == d.name || d.below && strings.HasSuffix(host, "."+d.name)
}

// names reports whether the pattern is for this host alone.
func (d domain) names(host string) bool { return d.self && host == d.name }

// proxyVariables are the variables that tell programs about an HTTP proxy.
var proxyVariables = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "WS_PROXY", "WSS_PROXY", "ws_proxy", "wss_proxy",
	"YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "npm_config_http_proxy", "npm_config_https_proxy", "npm_config_proxy",
	"NPM_CONFIG_HTTP_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_PROXY", "BUNDLE_HTTP_PROXY", "BUNDLE_HTTPS_PROXY",
	"PIP_PROXY", "DOCKER_HTTP_PROXY", "DOCKER_HTTPS_PROXY",
}

// variables returns what the environment of a process has for a proxy at an address.
func (l *proxyLaunch) variables(addr string) map[string]string {
	env := map[string]string{
		"NODE_USE_ENV_PROXY": "1", "ELECTRON_GET_USE_PROXY": "true",
		"CODEX_NETWORK_PROXY_ACTIVE": "1", "CODEX_NETWORK_ALLOW_LOCAL_BINDING": "0",
	}
	for _, name := range proxyVariables {
		env[name] = "http://" + addr
	}
	other, none := "http://"+addr, ""
	if l.socks {
		other = "socks5h://" + addr
	}
	if l.local {
		none = "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
		env["CODEX_NETWORK_ALLOW_LOCAL_BINDING"] = "1"
	}
	for _, name := range []string{"ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy"} {
		env[name] = other
	}
	for _, name := range []string{"NO_PROXY", "no_proxy", "npm_config_noproxy", "NPM_CONFIG_NOPROXY", "BUNDLE_NO_PROXY"} {
		env[name] = none
	}
	return env
}
