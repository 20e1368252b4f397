package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// accessOperations are those of tokens, shares and tickets.
func accessOperations() []operation {
	return []operation{
		{method: "GET", pattern: "/v1/tokens", name: "listTokens", scope: access.Admin, summary: "List tokens, without their secrets",
			status: 200, answer: TokenList{}, problems: []string{"unsupported"}, serve: (*call).listTokens},
		{method: "POST", pattern: "/v1/tokens", name: "createToken", scope: access.Admin, summary: "Make a token; its secret is shown once",
			body: TokenRequest{}, status: 201, answer: TokenInfo{}, problems: []string{"unsupported"}, serve: (*call).createToken},
		{method: "DELETE", pattern: "/v1/tokens/{id}", name: "revokeToken", scope: access.Admin, summary: "Revoke a token",
			status: 204, problems: []string{"not_found", "unsupported"}, serve: (*call).revokeToken},

		{method: "POST", pattern: "/v1/runs/{run}/shares", name: "shareRun", scope: access.Read, summary: "Make an address with which others see one run; it is shown once",
			body: ShareRequest{}, status: 201, answer: ShareInfo{}, problems: []string{"not_found", "unsupported"}, serve: (*call).shareRun},
		{method: "GET", pattern: "/v1/shares", name: "listShares", scope: access.Read, summary: "List shares that the subject made; with the scope admin all",
			query: []param{{name: "run", doc: "Only those of this run"}}, status: 200, answer: ShareList{}, problems: []string{"unsupported"}, serve: (*call).listShares},
		{method: "DELETE", pattern: "/v1/shares/{id}", name: "revokeShare", scope: access.Read, summary: "End a share",
			status: 204, problems: []string{"not_found", "unsupported"}, serve: (*call).revokeShare},

		{method: "POST", pattern: "/v1/tickets", name: "makeTicket", scope: access.Read, summary: "Make an address that a browser can use without the key of the page, once and for a minute",
			body: TicketRequest{}, status: 201, answer: TicketInfo{}, problems: []string{"unsupported"}, serve: (*call).makeTicket},
	}
}

// TokenList is the answer to a list of tokens.
type TokenList struct {
	Tokens []TokenInfo `json:"tokens"`
}

// TokenInfo describes a token.
type TokenInfo struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Subject  string            `json:"subject"`
	Scopes   access.Scopes     `json:"scopes"`
	Runs     []spool.RunID     `json:"runs,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Quotas   *access.Quotas    `json:"quotas,omitempty"`
	Created  time.Time         `json:"created"`
	Expires  time.Time         `json:"expires,omitzero"`
	LastUsed time.Time         `json:"last_used,omitzero"`
	Secret   string            `json:"secret,omitempty"` // only when it is made
}

// TokenRequest is what a token is to be.
type TokenRequest struct {
	Name    string            `json:"name"`
	Subject string            `json:"subject,omitempty"` // the name without it
	Scopes  access.Scopes     `json:"scopes,omitempty"`
	Runs    []spool.RunID     `json:"runs,omitempty"`   // the only ones of the subject that it sees
	Labels  map[string]string `json:"labels,omitempty"` // of the runs that it sees and starts
	Quotas  access.Quotas     `json:"quotas,omitzero"`
	Expires time.Time         `json:"expires,omitzero"`
}

func tokenInfo(t *access.Token) TokenInfo {
	info := TokenInfo{
		ID: t.ID, Name: t.Name, Subject: t.Owner(), Scopes: t.Scopes, Runs: t.Runs, Labels: t.Labels,
		Created: t.Created, Expires: t.Expires, LastUsed: t.LastUsed,
	}
	if t.Quotas != (access.Quotas{}) {
		info.Quotas = &t.Quotas
	}
	return info
}

// tokenFile returns the token file that the server changes.
func (c *call) tokenFile() (string, error) {
	if s := c.server.signIn; s != nil && s.File != nil {
		return s.File.Path(), nil
	}
	return "", problemf("unsupported", "this server has no tokens of its own")
}

func (c *call) listTokens() error {
	path, err := c.tokenFile()
	if err != nil {
		return err
	}
	tokens, err := access.ListTokens(path)
	if err != nil {
		return err
	}
	list := TokenList{Tokens: []TokenInfo{}}
	for i := range tokens {
		list.Tokens = append(list.Tokens, tokenInfo(&tokens[i]))
	}
	return c.reply(http.StatusOK, list)
}

func (c *call) createToken() error {
	path, err := c.tokenFile()
	if err != nil {
		return err
	}
	var q TokenRequest
	if err := c.decode(&q, "token"); err != nil {
		return err
	}
	t := access.Token{
		Name: q.Name, Subject: q.Subject, Scopes: q.Scopes, Quotas: q.Quotas, Expires: q.Expires.UTC(),
		Narrow: access.Narrow{Runs: q.Runs, Labels: q.Labels},
	}
	if len(q.Runs) > 0 {
		t.Of = t.Owner()
	}
	t, secret, err := access.CreateToken(path, t)
	if err != nil {
		return err
	}
	c.server.guard.Note(c.subject, access.Source(c.r), access.Entry{Act: access.ActToken, What: t.ID})
	info := tokenInfo(&t)
	info.Secret = secret
	return c.reply(http.StatusCreated, info)
}

func (c *call) revokeToken() error {
	path, err := c.tokenFile()
	if err != nil {
		return err
	}
	t, err := access.RevokeTokenID(path, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	c.server.guard.Note(c.subject, access.Source(c.r), access.Entry{Act: access.ActRevoke, What: t.ID})
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// ShareRequest is what others may do with a run, and until when.
type ShareRequest struct {
	Scopes  access.Scopes `json:"scopes,omitempty"` // runs:read without it
	Expires time.Time     `json:"expires,omitzero"` // after a day without it
}

// ShareInfo describes a share.
type ShareInfo struct {
	ID       string        `json:"id"`
	Run      spool.RunID   `json:"run"`
	Scopes   access.Scopes `json:"scopes"`
	Created  time.Time     `json:"created"`
	By       string        `json:"by"`
	Expires  time.Time     `json:"expires,omitzero"`
	LastUsed time.Time     `json:"last_used,omitzero"`
	URL      string        `json:"url,omitempty"` // only when it is made
}

// ShareList is the answer to a list of shares.
type ShareList struct {
	Shares []ShareInfo `json:"shares"`
}

func shareInfo(t *access.Token) ShareInfo {
	by := access.Subject{Name: t.By}
	info := ShareInfo{ID: t.ID, Scopes: t.Scopes, Created: t.Created, By: by.String(), Expires: t.Expires, LastUsed: t.LastUsed}
	if len(t.Runs) > 0 {
		info.Run = t.Runs[0]
	}
	return info
}

// shareFile returns the file of shares.
func (c *call) shareFile() (string, error) {
	if s := c.server.signIn; s != nil && s.Shares != nil {
		return s.Shares.Path(), nil
	}
	return "", problemf("unsupported", "this server has no shares")
}

func (c *call) shareRun() error {
	path, err := c.shareFile()
	if err != nil {
		return err
	}
	run, err := c.backend.Stat(c.ctx, c.run())
	if err != nil {
		return err
	}
	var q ShareRequest
	if err := c.decode(&q, "share"); err != nil {
		return err
	}
	t, secret, err := access.CreateShare(path, c.subject, access.Share{Run: run, Scopes: q.Scopes, Expires: q.Expires})
	if err != nil {
		return err
	}
	c.server.guard.Note(c.subject, access.Source(c.r), access.Entry{Act: access.ActShare, Run: run.ID, What: t.ID})
	info := shareInfo(&t)
	scheme := "http"
	if access.Secure(c.r) {
		scheme = "https"
	}
	info.URL = scheme + "://" + c.r.Host + "/runs/" + string(run.ID) + "#s=" + secret
	return c.reply(http.StatusCreated, info)
}

func (c *call) listShares() error {
	path, err := c.shareFile()
	if err != nil {
		return err
	}
	shares, err := access.ListShares(path)
	if err != nil {
		return err
	}
	list := ShareList{Shares: []ShareInfo{}}
	for i := range shares {
		s := &shares[i]
		if run := c.text("run"); c.subject.MayRevoke(s) && (run == "" || slices.Contains(s.Runs, spool.RunID(run))) {
			list.Shares = append(list.Shares, shareInfo(s))
		}
	}
	return c.reply(http.StatusOK, list)
}

func (c *call) revokeShare() error {
	path, err := c.shareFile()
	if err != nil {
		return err
	}
	t, err := access.RevokeShare(path, c.r.PathValue("id"), c.subject)
	if err != nil {
		return err
	}
	c.server.guard.Note(c.subject, access.Source(c.r), access.Entry{Act: access.ActRevoke, What: t.ID})
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
