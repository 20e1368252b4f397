package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/strict"
)

const (
	// SessionFileName is the name of the file of sessions in a state directory,
	// beside the token file.
	SessionFileName = "sessions.json"
	// SessionFor is how long a session lasts after its last use.
	SessionFor = 30 * 24 * time.Hour
	// MaxSessions is how many sessions there are. A further one takes the place
	// of the one that was not used for the longest time.
	// It has no flag: the servers and commands of a state directory share its file.
	MaxSessions = 1000
	// KeyHeader is the header with the key of a page.
	KeyHeader = "Spool-Key"
	// KeyProtocol begins the subprotocol of a WebSocket that is the key of a page.
	KeyProtocol = "spool-key."

	maxSessionFile = 4 << 20 // bytes
	maxCookies     = 4       // with the name of ours that are looked at
	seenEvery      = time.Hour
)

// Session is an entry of the file of sessions. It has no secret: only digests.
type Session struct {
	ID string `json:"id"`
	// Token is the id of the token with which the page signed in; it is empty
	// for the owner of the machine. A session ends with its token.
	Token     string    `json:"token,omitempty"`
	SHA256    string    `json:"sha256"`     // of the secret in the cookie
	KeySHA256 string    `json:"key_sha256"` // of the key of the page
	Created   time.Time `json:"created"`
	Seen      time.Time `json:"seen"` // about
	From      string    `json:"from,omitempty"`
}

// Expires returns when the session ends if it is not used.
func (s *Session) Expires() time.Time { return s.Seen.Add(SessionFor) }

func (s *Session) check() error {
	for _, text := range []string{s.SHA256, s.KeySHA256} {
		if b, err := hex.DecodeString(text); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("session %q: a digest must have 64 hexadecimal characters", s.ID)
		}
	}
	if len(s.ID) != tokenIDSize {
		return fmt.Errorf("session %q: its id must have %d characters", s.ID, tokenIDSize)
	}
	return nil
}

type sessionFile struct {
	Sessions []Session `json:"sessions"`
}

// ListSessions returns the sessions of a file, in the order in which they began. A
// file that does not exist has none.
func ListSessions(path string) ([]Session, error) {
	b, err := readPrivate(path, "session file", maxSessionFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file sessionFile
	if err := strict.Unmarshal(b, &file, "session file"); err != nil {
		return nil, fmt.Errorf("read session file %s: %w", path, err)
	}
	for i := range file.Sessions {
		if err := file.Sessions[i].check(); err != nil {
			return nil, fmt.Errorf("read session file %s: %w", path, err)
		}
	}
	return file.Sessions, nil
}

// RevokeSession ends the session with an id. Servers notice at once.
func RevokeSession(path, id string) error {
	err := changeSessions(path, func(all []Session) ([]Session, error) {
		i := slices.IndexFunc(all, func(s Session) bool { return s.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("session %.40q: %w", id, spool.ErrNotFound)
		}
		return slices.Delete(all, i, i+1), nil
	})
	if err != nil {
		return fmt.Errorf("revoke session: %w", err)
	}
	return nil
}

func changeSessions(path string, change func([]Session) ([]Session, error)) error {
	return changePrivate(path, func() (any, error) {
		all, err := ListSessions(path)
		if err != nil {
			return nil, err
		}
		if all, err = change(all); err != nil {
			return nil, err
		}
		return sessionFile{append([]Session{}, all...)}, nil
	})
}

// Sessions is the [Authenticator] of pages that signed in. Each of their requests has
// a cookie and a key. Any service of the machine may see the cookie, because cookies
// do not know ports, and a script that reads the key of a page is without the cookie
// everywhere else: none of the two means anything alone.
type Sessions struct {
	path   string
	tokens []*Tokens // of subjects
	now    func() time.Time

	mu   sync.Mutex
	file fs.FileInfo // the file that was read; nil if there was none
	byID map[string]*Session
}

// OpenSessions reads the sessions of a file, which need not exist. Sessions that
// began with a token need the files of these.
func OpenSessions(path string, tokens ...*Tokens) (*Sessions, error) {
	s := &Sessions{path: path, tokens: tokens, now: time.Now}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.refresh()
}

// refresh reads the file again if it has changed. Callers hold s.mu.
func (s *Sessions) refresh() error {
	info, err := os.Stat(s.path)
	if err == nil && s.file != nil && sameFile(info, s.file) {
		return nil
	}
	all, err := ListSessions(s.path)
	if err != nil {
		s.file = nil
		return err
	}
	s.file, s.byID = info, make(map[string]*Session, len(all))
	for i := range all {
		s.byID[all[i].ID] = &all[i]
	}
	return nil
}

// lookup returns a copy of the session with an id, or nil.
func (s *Sessions) lookup(id string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		return nil, err
	}
	known := s.byID[id]
	if known == nil {
		return nil, nil
	}
	found := *known
	return &found, nil
}

// Begin begins a session of a subject, and returns it with the two halves of its
// credentials, which are nowhere else.
func (s *Sessions) Begin(subject *Subject, from string) (session Session, cookie, key string, err error) {
	if !subject.IsOwner() && subject.token == "" {
		return Session{}, "", "", fmt.Errorf("sign in: %w: only the owner and the holders of tokens have sessions", spool.ErrUnsupported)
	}
	secret := randomText(secretSize)
	key = randomText(secretSize)
	now := s.now().UTC().Round(time.Second)
	session = Session{
		ID: randomText(tokenIDSize), Token: subject.token, SHA256: digestOf(secret), KeySHA256: digestOf(key),
		Created: now, Seen: now, From: from,
	}
	err = changeSessions(s.path, func(all []Session) ([]Session, error) {
		all = slices.DeleteFunc(all, func(o Session) bool { return !now.Before(o.Expires()) })
		for len(all) >= MaxSessions {
			oldest := 0
			for i := range all {
				if all[i].Seen.Before(all[oldest].Seen) {
					oldest = i
				}
			}
			all = slices.Delete(all, oldest, oldest+1)
		}
		return append(all, session), nil
	})
	if err != nil {
		return Session{}, "", "", fmt.Errorf("sign in: %w", err)
	}
	return session, session.ID + "." + secret, key, nil
}

// End ends the session of a subject.
func (s *Sessions) End(subject *Subject) error { return RevokeSession(s.path, subject.session) }

func digestOf(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

var (
	errNoSession = &Refusal{Status: http.StatusUnauthorized, Text: "a page needs its cookie and its key"}
	errEnded     = &Refusal{Status: http.StatusUnauthorized, Text: "the session has expired", Expired: true}
)

// Authenticate implements [Authenticator].
func (s *Sessions) Authenticate(r *http.Request) (*Subject, error) {
	if r.Header.Get("Authorization") != "" { // whose token was refused
		return nil, errInvalid
	}
	key := PageKey(r)
	var cookies []*http.Cookie
	if all := r.CookiesNamed(CookieName(r)); key != "" {
		cookies = all[:min(len(all), maxCookies)]
	}
	if len(cookies) == 0 {
		return nil, errNoSession
	}
	// A service on another port may set a cookie of the same name.
	var err error
	for _, cookie := range cookies {
		var subject *Subject
		if subject, err = s.authenticate(cookie.Value, key); err == nil {
			return subject, nil
		}
	}
	return nil, err
}

// authenticate returns the subject of a cookie and a key.
func (s *Sessions) authenticate(cookie, key string) (*Subject, error) {
	id, secret, _ := strings.Cut(cookie, ".")
	session, err := s.lookup(id)
	if err != nil {
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Text: "the server cannot read its session file", Err: err}
	}
	known := session != nil
	if !known {
		session = new(Session) // compare anyway: an unknown id takes as long
	}
	same := subtle.ConstantTimeCompare([]byte(digestOf(secret)), []byte(session.SHA256)) &
		subtle.ConstantTimeCompare([]byte(digestOf(key)), []byte(session.KeySHA256))
	if !known || same != 1 {
		return nil, errNoSession
	}
	now := s.now()
	if !now.Before(session.Expires()) {
		return nil, errEnded
	}
	subject, err := s.subject(session)
	if err != nil {
		return nil, err
	}
	if now.Sub(session.Seen) >= seenEvery {
		s.touch(id, now)
	}
	return subject, nil
}

// subject returns the subject of a session. The error is a [*Refusal].
func (s *Sessions) subject(session *Session) (*Subject, error) {
	subject := Owner()
	if session.Token != "" {
		subject = nil
		for _, tokens := range s.tokens {
			var err error
			if subject, err = tokens.byToken(session.Token); err != nil {
				return nil, &Refusal{Status: http.StatusServiceUnavailable, Text: "the server cannot read its token file", Err: err}
			}
			if subject != nil {
				break
			}
		}
		if subject == nil { // revoked or expired
			return nil, errEnded
		}
	}
	subject.session = session.ID
	return subject, nil
}

// byCookie returns the subject of the session with an id, if the cookie of a request
// is its cookie. Something else than the key must prove that the page sent it. The
// error is a [*Refusal].
func (s *Sessions) byCookie(r *http.Request, id string) (*Subject, error) {
	session, err := s.lookup(id)
	if err != nil {
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Text: "the server cannot read its session file", Err: err}
	}
	if session == nil {
		return nil, errNoSession
	}
	if !s.now().Before(session.Expires()) {
		return nil, errEnded
	}
	all := r.CookiesNamed(CookieName(r))
	for _, cookie := range all[:min(len(all), maxCookies)] {
		of, secret, _ := strings.Cut(cookie.Value, ".")
		if of == id && subtle.ConstantTimeCompare([]byte(digestOf(secret)), []byte(session.SHA256)) == 1 {
			return s.subject(session)
		}
	}
	return nil, errNoSession
}

// touch notes that a session was used. If that fails, the session ends sooner.
func (s *Sessions) touch(id string, now time.Time) {
	s.mu.Lock()
	if known := s.byID[id]; known != nil {
		known.Seen = now // other requests need not do it again
	}
	s.mu.Unlock()
	_ = changeSessions(s.path, func(all []Session) ([]Session, error) {
		i := slices.IndexFunc(all, func(o Session) bool { return o.ID == id })
		if i < 0 {
			return nil, spool.ErrNotFound
		}
		all[i].Seen = now.UTC().Round(time.Second)
		return all, nil
	})
}

// Valid implements [Authenticator]. While the file cannot be read, connections stay
// as they are.
func (s *Sessions) Valid(subject *Subject) error {
	if subject.session == "" {
		return nil
	}
	session, err := s.lookup(subject.session)
	if err != nil {
		return nil
	}
	if session == nil || !s.now().Before(session.Expires()) {
		return fmt.Errorf("%w: the session was ended", spool.ErrDenied)
	}
	return nil
}

// Renew notes that the session of a subject is in use, and returns when it ends
// otherwise.
func (s *Sessions) Renew(subject *Subject) (time.Time, error) {
	if err := s.Valid(subject); err != nil {
		return time.Time{}, err
	}
	s.touch(subject.session, s.now())
	return s.Expires(subject), nil
}

// Expires returns when the session of a subject ends if it is not used.
func (s *Sessions) Expires(subject *Subject) time.Time {
	session, err := s.lookup(subject.session)
	if err != nil || session == nil {
		return time.Time{}
	}
	return session.Expires()
}

// PageKey returns the key that a page sends: in the header [KeyHeader], or, because
// pages cannot set headers of a WebSocket, as the subprotocol that begins with
// [KeyProtocol].
func PageKey(r *http.Request) string {
	if key := r.Header.Get(KeyHeader); key != "" {
		return key
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(name), KeyProtocol); ok {
				return key
			}
		}
	}
	return ""
}

// CookieName returns the name of the cookie of the server that a request names. It
// has the port, because cookies do not.
func CookieName(r *http.Request) string {
	if Secure(r) {
		return "__Host-spool_" + portOf(r)
	}
	return "spool_" + portOf(r)
}

// Cookie returns the cookie with a value, which is empty to remove it. Over plain
// HTTP it is not Secure: there are browsers that send no such cookie to localhost.
func Cookie(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{
		Name: CookieName(r), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: Secure(r), MaxAge: int(SessionFor / time.Second),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}
