package httpapi

import (
	"net/http"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// sessionOperations are how pages sign in and out.
func sessionOperations() []operation {
	return []operation{
		{method: "POST", pattern: "/v1/session", name: "signIn", open: true, summary: "Sign in a page, with a one-time code or a token: sets a cookie and answers with the key of the page",
			body: SessionRequest{}, status: 200, answer: SessionInfo{}, problems: []string{"invalid", "unauthenticated", "expired", "too_many_failures", "unsupported"}, serve: (*call).openSession},
		{method: "GET", pattern: "/v1/session", name: "getSession", summary: "Who asks, and what it may do; the cookie of a page lasts longer again",
			status: 200, answer: SessionInfo{}, serve: (*call).getSession},
		{method: "DELETE", pattern: "/v1/session", name: "signOut", summary: "Sign out a page",
			status: 204, problems: []string{"unsupported"}, serve: (*call).endSession},
	}
}

// SessionRequest is what a page signs in with: one of the two.
type SessionRequest struct {
	Code  string `json:"code,omitempty"`  // of "spool open", for the owner
	Token string `json:"token,omitempty"` // for others
}

// SessionInfo is who a client is.
type SessionInfo struct {
	ID      string            `json:"id,omitempty"`  // of the session of a page
	Key     string            `json:"key,omitempty"` // of the page, only when it signs in
	Subject string            `json:"subject"`
	Scopes  access.Scopes     `json:"scopes"`
	Runs    []spool.RunID     `json:"runs,omitempty"`   // the only ones that it sees
	Labels  map[string]string `json:"labels,omitempty"` // of the runs that it sees
	Expires time.Time         `json:"expires,omitzero"` // if the page does nothing until then
	Server  ServerName        `json:"server"`
}

// ServerName is which server answers.
type ServerName struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (c *call) sessionInfo() SessionInfo {
	return SessionInfo{
		ID: c.subject.Session(), Subject: c.subject.String(), Scopes: c.subject.Scopes, Runs: c.subject.Runs, Labels: c.subject.Labels, Expires: c.subject.Expires,
		Server: ServerName{"spool", c.server.version},
	}
}

var errNoSignIn = problemf("unsupported", "pages do not sign in at this server: it has another way to know its clients")

func (c *call) openSession() error {
	s := c.server
	if s.signIn == nil || s.auth == nil {
		return errNoSignIn
	}
	var q SessionRequest
	if err := c.decode(&q, "session"); err != nil {
		return err
	}
	if (q.Code == "") == (q.Token == "") {
		return problemf("invalid", "a page signs in with a code or with a token")
	}
	var err error
	if q.Code != "" {
		c.subject, err = s.signIn.ByCode(q.Code)
	} else {
		c.subject, err = s.signIn.ByToken(c.r, q.Token)
	}
	if err != nil {
		return c.refuse(access.ActLogin, s.auth.Fail(c.r, err))
	}
	from := access.Source(c.r)
	session, cookie, key, err := s.signIn.Sessions.Begin(c.subject, from)
	if err != nil {
		return err
	}
	s.guard.Note(c.subject, from, access.Entry{Act: access.ActLogin, What: session.ID})
	http.SetCookie(c.w, access.Cookie(c.r, cookie))
	info := c.sessionInfo()
	info.ID, info.Key = session.ID, key
	if info.Expires.IsZero() || info.Expires.After(session.Expires()) {
		info.Expires = session.Expires()
	}
	return c.reply(http.StatusOK, info)
}

func (c *call) getSession() error {
	info := c.sessionInfo()
	if s := c.server.signIn; s != nil && info.ID != "" {
		if end := s.Sessions.Expires(c.subject); info.Expires.IsZero() || end.Before(info.Expires) {
			info.Expires = end
		}
		for _, cookie := range c.r.CookiesNamed(access.CookieName(c.r)) {
			if len(cookie.Value) > len(info.ID) && cookie.Value[:len(info.ID)+1] == info.ID+"." {
				http.SetCookie(c.w, access.Cookie(c.r, cookie.Value))
			}
		}
	}
	return c.reply(http.StatusOK, info)
}

func (c *call) endSession() error {
	s := c.server
	if s.signIn == nil || c.subject.Session() == "" {
		return problemf("unsupported", "only the session of a page ends; tokens are revoked with \"spool token revoke\"")
	}
	if err := s.signIn.Sessions.End(c.subject); err != nil {
		return err
	}
	s.guard.Note(c.subject, access.Source(c.r), access.Entry{Act: access.ActLogout, What: c.subject.Session()})
	http.SetCookie(c.w, access.Cookie(c.r, ""))
	c.w.Header().Set("Clear-Site-Data", `"storage"`)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
