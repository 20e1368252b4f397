package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// FuzzQuery gives every operation a query and a cursor in the header: each is refused with a
// problem that clients can tell, or has values that its parameters allow.
func FuzzQuery(f *testing.F) {
	for _, s := range [][2]string{
		{"after=1&wait_ms=5", "7"}, {"after=-1", ""}, {"after=x", ""}, {"after=9223372036854775808", "-2"}, {"limit=0&limit=1", ""}, {"q=%zz", ""},
		{"cursor=&label=a:b&label=c", "1e3"}, {"from=-9223372036854775808&count=2000", " 1"}, {"named=maybe", "+1"}, {"since=2026-01-02T15:04:05Z", "18446744073709551615"}, {";", "0x10"},
	} {
		f.Add(s[0], s[1])
	}
	server := &Server{limits: Limits{}.withDefaults()}
	f.Fuzz(func(t *testing.T, query, last string) {
		for i := range operations() {
			op := &operations()[i]
			c := &call{server: server, op: op, ctx: context.Background(), r: &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{"Last-Event-Id": {last}}}}
			if err := c.checkQuery(); err != nil {
				refusal(t, op, err)
				continue
			}
			if last != "" { // it wins over the query
				if _, err := c.cursor(); err != nil {
					refusal(t, op, err)
				}
			}
			for _, p := range op.query {
				most := p.max
				if p.most != nil {
					most = p.most(&server.limits)
				}
				if n := c.number(p.name, p.min); p.kind == numberParam && (n < p.min || n > most) {
					t.Errorf("%s: %s is %d", op.name, p.name, n)
				}
				if v := c.text(p.name); c.query.Has(p.name) && len(p.oneOf) > 0 && !slices.Contains(p.oneOf, v) {
					t.Errorf("%s: %s is %q", op.name, p.name, v)
				}
			}
		}
	})
}

// refusal checks why a request was refused.
func refusal(t *testing.T, op *operation, err error) {
	t.Helper()
	var p *Problem
	if !errors.As(err, &p) || !slices.Contains([]string{"invalid", "unknown_member", "bad_cursor"}, p.Code) || p.Detail == "" {
		t.Errorf("%s: refused with %v", op.name, err)
	}
}
