package execserver

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
)

// routeCookies is the cookie jar of a connection. It keeps only the cookies with
// which the load balancers of ChatGPT recognise a client, so that the requests
// of an MCP session reach one server. It never holds a cookie of an account.
type routeCookies struct{ jar *cookiejar.Jar }

func newRouteCookies() *routeCookies {
	jar, err := cookiejar.New(nil)
	if err != nil { // New without options does not fail
		jar = new(cookiejar.Jar)
	}
	return &routeCookies{jar}
}

// SetCookies keeps the routing cookies of a response.
func (c *routeCookies) SetCookies(u *url.URL, cookies []*http.Cookie) {
	if hasRouteCookies(u) {
		c.jar.SetCookies(u, slices.DeleteFunc(slices.Clone(cookies), func(c *http.Cookie) bool { return !isRouteCookie(c.Name) }))
	}
}

// Cookies returns the routing cookies for a request.
func (c *routeCookies) Cookies(u *url.URL) []*http.Cookie {
	if !hasRouteCookies(u) {
		return nil
	}
	return c.jar.Cookies(u)
}

func hasRouteCookies(u *url.URL) bool {
	if u.Scheme != "https" {
		return false
	}
	switch host := u.Hostname(); host {
	case "chatgpt.com", "chat.openai.com", "chatgpt-staging.com":
		return true
	default:
		return strings.HasSuffix(host, ".chatgpt.com") || strings.HasSuffix(host, ".chatgpt-staging.com")
	}
}

// isRouteCookie reports whether a name is one of the service cookies of
// Cloudflare, or OpenAI's routing cookie.
func isRouteCookie(name string) bool {
	switch name {
	case "__cf_bm", "__cflb", "__cfruid", "__cfseq", "__cfwaitingroom", "__oailb",
		"_cfuvid", "cf_clearance", "cf_ob_info", "cf_use_ob":
		return true
	}
	return strings.HasPrefix(name, "cf_chl_")
}
