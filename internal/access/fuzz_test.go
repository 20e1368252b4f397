package access

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzScope checks that a scope means the same once it is written out, and that
// no scope but admin includes admin.
func FuzzScope(f *testing.F) {
	for _, s := range []string{"runs:read", "runs:start:kernel", "files:/srv/../etc", "files:x", "admin", "runs:start:", "Admin", "asks:answer"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScope(text)
		if err != nil {
			return
		}
		if again, err := ParseScope(string(s)); err != nil || again != s {
			t.Fatalf("%q is %q, and that is %q: %v", text, s, again, err)
		}
		list, err := json.Marshal(Scopes{s})
		if err != nil {
			t.Fatal(err)
		}
		var back Scopes
		if err := json.Unmarshal(list, &back); err == nil && back.Has(Admin) != (text == string(Admin)) {
			t.Fatalf("%q gives %v", text, back)
		}
	})
}

// page begins a session, and returns its credentials.
func page(f *testing.F) (sessions *Sessions, session Session, cookie, key string) {
	f.Helper()
	sessions, err := OpenSessions(filepath.Join(f.TempDir(), SessionFileName))
	if err != nil {
		f.Fatal(err)
	}
	session, cookie, key, err = sessions.Begin(Owner(), "127.0.0.1")
	if err != nil {
		f.Fatal(err)
	}
	return sessions, session, cookie, key
}

// FuzzCookies checks that no headers but the two halves of a session open anything. In
// the headers COOKIE and KEY stand for the real ones.
func FuzzCookies(f *testing.F) {
	sessions, session, cookie, key := page(f)
	real := strings.NewReplacer("COOKIE", cookie, "KEY", key, "ID", session.ID)
	f.Add("spool_7766=COOKIE", "KEY", "", "")
	f.Add("spool_7766=COOKIE; spool_7766=x", "", "spool.v1, spool-key.KEY", "")
	f.Add("spool_7766=ID.", "KEY", "", "")
	f.Add("spool_7766=.; spool_7766=COOKIE", "KEY", "", "Bearer KEY")
	f.Add(`spool_7766="COOKIE"`, "KEYKEY", "spool-key.", "")
	f.Fuzz(func(t *testing.T, cookies, header, protocols, authorization string) {
		r := &http.Request{Host: "localhost:7766", Header: http.Header{}}
		for name, value := range map[string]string{"Cookie": cookies, KeyHeader: header, "Sec-Websocket-Protocol": protocols, "Authorization": authorization} {
			if value != "" {
				r.Header.Set(name, real.Replace(value))
			}
		}
		if protocols != "" {
			r.Header.Set("Upgrade", "websocket")
		}
		subject, err := sessions.Authenticate(r)
		if err != nil {
			return
		}
		if authorization != "" || !strings.Contains(r.Header.Get("Cookie"), cookie) || !strings.Contains(r.Header.Get(KeyHeader)+r.Header.Get("Sec-Websocket-Protocol"), key) {
			t.Errorf("%v open a session", r.Header)
		}
		if subject.Session() != session.ID {
			t.Errorf("the session is %q", subject.Session())
		}
	})
}

// FuzzTickets checks that no text but a ticket, with the cookie of its session, opens
// an address, and only that one.
func FuzzTickets(f *testing.F) {
	sessions, session, cookie, key := page(f)
	tickets := NewTickets(sessions)
	ticket, _, err := tickets.Make(&Subject{session: session.ID}, "/v1/runs/r/events", true)
	if err != nil {
		f.Fatal(err)
	}
	real := strings.NewReplacer("TICKET", ticket, "COOKIE", cookie, "KEY", key, "ID", session.ID)
	f.Add("TICKET", "COOKIE")
	f.Add("TICKET/", "COOKIE")
	f.Add("", "COOKIE")
	f.Add("TICKET", "ID.")
	f.Add("KEY", "COOKIE")
	f.Fuzz(func(t *testing.T, text, value string) {
		text, value = real.Replace(text), real.Replace(value)
		r := pageRequest("localhost:7766", value, "")
		subject, target, err := tickets.Use(r, text)
		if err != nil {
			return
		}
		sent, _ := r.Cookie(CookieName(r))
		if text != ticket || sent == nil || sent.Value != cookie || target != "/v1/runs/r/events" || subject.Session() != session.ID {
			t.Errorf("%q with %q opens %s", text, value, target)
		}
	})
}
