package access

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/strict"
)

const (
	// TokenFileName is the name of the token file in a state directory.
	TokenFileName = "tokens.json"
	// TokenPrefix begins every token, for programs that look for secrets.
	TokenPrefix = "spool_"

	tokenIDSize  = 8
	secretSize   = 43 // characters of base 62: 256 bits
	maxTokens    = 1000
	maxTokenFile = 4 << 20 // bytes
)

// Token is an entry of a token file. It has no secret: only its digest.
type Token struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Subject is the owner of the runs. Several tokens may have the same
	// subject; without one it is the name of the token.
	Subject string `json:"subject,omitempty"`
	SHA256  string `json:"sha256"`
	Scopes  Scopes `json:"scopes"`
	Quotas  Quotas `json:"quotas,omitzero"`
	Narrow
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	// LastUsed is about when the token was used last, if the server that was
	// asked may change the file.
	LastUsed time.Time `json:"last_used,omitzero"`
	// By is the subject that made a share, and ByToken the id of its token, with
	// which the share ends. Tokens have none.
	By      string `json:"by,omitempty"`
	ByToken string `json:"by_token,omitempty"`
}

// Owner returns the name of the subject of the token.
func (t *Token) Owner() string { return cmp.Or(t.Subject, t.Name) }

// check returns an error for a token that cannot be used.
func (t *Token) check() error {
	digest, err := hex.DecodeString(t.SHA256)
	switch {
	case len(t.ID) != tokenIDSize:
		return fmt.Errorf("token %q: its id must have %d characters", t.Name, tokenIDSize)
	case err != nil || len(digest) != sha256.Size:
		return fmt.Errorf("token %q: sha256 must have 64 hexadecimal characters", t.Name)
	}
	if err := CheckName(t.Name); err != nil {
		return fmt.Errorf("token %q: %w", t.Name, err)
	}
	if err := CheckName(t.Owner()); err != nil {
		return fmt.Errorf("token %q: %w", t.Name, err)
	}
	if err := t.Quotas.Check(); err != nil {
		return fmt.Errorf("token %q: %w", t.Name, err)
	}
	if err := t.Narrow.check(t.Scopes); err != nil {
		return fmt.Errorf("token %q: %w", t.Name, err)
	}
	return nil
}

func (t *Token) subject() *Subject {
	return &Subject{Name: t.Owner(), Scopes: t.Scopes, Expires: t.Expires, Quotas: t.Quotas, Narrow: t.Narrow, token: t.ID}
}

// tokenFile is the contents of a token file.
type tokenFile struct {
	Tokens []Token `json:"tokens"`
}

// readTokens reads a token file, or a file of shares. The file must belong to this
// user, and no other user may have access to it.
func readTokens(path string) ([]Token, error) {
	most, limit := maxTokens, int64(maxTokenFile)
	if filepath.Base(path) == ShareFileName {
		most, limit = MaxShares, maxShareFile
	}
	b, err := readPrivate(path, "token file", limit)
	if err != nil {
		return nil, err
	}
	// An unknown member might restrict a token: it must not be passed over.
	var file tokenFile
	if err := strict.Unmarshal(b, &file, "token file"); err != nil {
		return nil, fmt.Errorf("read token file %s: %w", path, err)
	}
	if len(file.Tokens) > most {
		return nil, fmt.Errorf("read token file %s: it has more than %d tokens", path, most)
	}
	ids := make(map[string]bool, len(file.Tokens))
	for i := range file.Tokens {
		t := &file.Tokens[i]
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("read token file %s: %w", path, err)
		}
		if ids[t.ID] {
			return nil, fmt.Errorf("read token file %s: two tokens have the id %q", path, t.ID)
		}
		ids[t.ID] = true
	}
	return file.Tokens, nil
}

// ListTokens returns the tokens of a file, in the order in which they were
// created. A file that does not exist has none.
func ListTokens(path string) ([]Token, error) {
	tokens, err := readTokens(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return tokens, err
}

// CreateToken adds a token to a file and returns it with its secret, which is
// nowhere else. It makes the file if necessary. The caller sets Name, and may
// set Subject, Scopes, Quotas and Expires.
func CreateToken(path string, t Token) (Token, string, error) {
	t.ID, t.Created = randomText(tokenIDSize), time.Now().UTC().Round(time.Second)
	secret := TokenPrefix + t.ID + "_" + randomText(secretSize)
	digest := sha256.Sum256([]byte(secret))
	t.SHA256 = hex.EncodeToString(digest[:])
	if len(t.Scopes) == 0 {
		t.Scopes = DefaultScopes()
	}
	if err := t.check(); err != nil {
		return Token{}, "", err
	}
	err := changeTokens(path, func(all []Token) ([]Token, error) {
		if slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name }) {
			return nil, fmt.Errorf("%w: there is a token %q already", spool.ErrInvalid, t.Name)
		}
		if len(all) >= maxTokens {
			return nil, fmt.Errorf("%w: the file has %d tokens, which is the limit", spool.ErrBusy, maxTokens)
		}
		return append(all, t), nil
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("create token: %w", err)
	}
	return t, secret, nil
}

// RevokeToken removes the token with a name or an id from a file.
func RevokeToken(path, name string) (Token, error) {
	return revoke(path, name, func(all []Token) int {
		i := slices.IndexFunc(all, func(t Token) bool { return t.Name == name })
		if i < 0 {
			i = slices.IndexFunc(all, func(t Token) bool { return t.ID == name })
		}
		return i
	})
}

// RevokeTokenID removes the token with an id from a file.
func RevokeTokenID(path, id string) (Token, error) {
	return revoke(path, id, func(all []Token) int {
		return slices.IndexFunc(all, func(t Token) bool { return t.ID == id })
	})
}

// RevokeShare ends a share that the subject may end. Others are not found.
func RevokeShare(path, id string, by *Subject) (Token, error) {
	return revoke(path, id, func(all []Token) int {
		return slices.IndexFunc(all, func(t Token) bool { return t.ID == id && by.MayRevoke(&t) })
	})
}

// revoke removes the token that find finds.
func revoke(path, name string, find func([]Token) int) (Token, error) {
	var revoked Token
	err := changeTokens(path, func(all []Token) ([]Token, error) {
		i := find(all)
		if i < 0 {
			return nil, fmt.Errorf("token %.40q: %w", name, spool.ErrNotFound)
		}
		revoked = all[i]
		return slices.Delete(all, i, i+1), nil
	})
	if err != nil {
		return Token{}, fmt.Errorf("revoke token: %w", err)
	}
	return revoked, nil
}

// changeTokens replaces the contents of a token file. Processes that do so at the
// same time wait for each other.
func changeTokens(path string, change func([]Token) ([]Token, error)) error {
	return changePrivate(path, func() (any, error) {
		tokens, err := ListTokens(path)
		if err != nil {
			return nil, err
		}
		if tokens, err = change(tokens); err != nil {
			return nil, err
		}
		return tokenFile{append([]Token{}, tokens...)}, nil
	})
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// randomText returns random characters of base 62.
func randomText(size int) string {
	b := make([]byte, size)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			panic(err) // reading random bytes never fails
		}
		b[i] = alphabet[n.Int64()]
	}
	return string(b)
}

// Tokens is the [Authenticator] of a token file. It notices when the file
// changes.
type Tokens struct {
	path    string
	within  *Tokens // those of the makers of shares
	noteUse bool    // when a token was used goes into the file
	now     func() time.Time

	mu   sync.Mutex
	file fs.FileInfo // the file that was read; nil if it could not be
	byID map[string]*entry
	err  error // why the file could not be read
}

// entry is a token, decoded.
type entry struct {
	digest [sha256.Size]byte
	token  Token
}

// OpenTokens reads a token file.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path, now: time.Now}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return t, nil
}

// AwaitTokens reads a token file that may be made later: until then it has no tokens.
func AwaitTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path, noteUse: true, now: time.Now, byID: make(map[string]*entry)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return t, nil
}

// OpenShares reads a file of shares, which may be made later. A share ends with the
// token of its maker.
func OpenShares(path string, makers *Tokens) (*Tokens, error) {
	t, err := AwaitTokens(path)
	if err != nil {
		return nil, err
	}
	t.within = makers
	return t, nil
}

// Path returns the path of the file.
func (t *Tokens) Path() string { return t.path }

// refresh reads the file again if it has changed. Callers hold t.mu.
func (t *Tokens) refresh() error {
	info, err := os.Stat(t.path)
	if err == nil && t.file != nil && sameFile(info, t.file) {
		return nil
	}
	tokens, err := readTokens(t.path)
	if errors.Is(err, fs.ErrNotExist) && t.byID != nil {
		err = nil // removing the file revokes all its tokens
	}
	if err != nil {
		t.file, t.err = nil, err
		return err
	}
	t.file, t.err, t.byID = info, nil, make(map[string]*entry, len(tokens))
	for _, token := range tokens {
		e := &entry{token: token}
		_, _ = hex.Decode(e.digest[:], []byte(token.SHA256)) // was checked
		t.byID[token.ID] = e
	}
	return nil
}

// lookup returns the entry of a token, or nil.
func (t *Tokens) lookup(id string) (*entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return t.byID[id], nil
}

// Authenticate implements [Authenticator].
func (t *Tokens) Authenticate(r *http.Request) (*Subject, error) {
	text, err := bearer(r)
	if err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(text, TokenPrefix), "_")
	e, err := t.lookup(id)
	if err != nil {
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Text: "the server cannot read its token file", Err: err}
	}
	known := e != nil
	if !known {
		e = new(entry) // compare anyway: an unknown id takes as long
	}
	digest := sha256.Sum256([]byte(text))
	same := subtle.ConstantTimeCompare(digest[:], e.digest[:]) == 1
	if !known || !same {
		return nil, errInvalid
	}
	s, err := t.enter(e)
	if err != nil {
		return nil, err
	}
	t.used(e)
	return s, nil
}

// enter returns the subject of an entry. The error is a [*Refusal].
func (t *Tokens) enter(e *entry) (*Subject, error) {
	s := e.token.subject()
	s.file = t.path
	if s.expired(t.now()) != nil {
		return nil, errExpired
	}
	if err := t.maker(e); err != nil {
		return nil, errExpired
	}
	return s, nil
}

// maker returns an error if the token with which a share was made is not valid any
// more.
func (t *Tokens) maker(e *entry) error {
	if e.token.ByToken == "" {
		return nil
	}
	if t.within == nil {
		return spool.ErrDenied
	}
	s, err := t.within.byToken(e.token.ByToken)
	if err == nil && s == nil {
		err = spool.ErrDenied
	}
	return err
}

// used notes that a token was used, once in a while. If that fails, the file says
// that it was used earlier.
func (t *Tokens) used(e *entry) {
	now := t.now().UTC().Round(time.Second)
	t.mu.Lock()
	due := t.noteUse && now.Sub(e.token.LastUsed) >= seenEvery
	if due {
		e.token.LastUsed = now // other requests need not do it again
	}
	t.mu.Unlock()
	if !due {
		return
	}
	_ = changeTokens(t.path, func(all []Token) ([]Token, error) {
		i := slices.IndexFunc(all, func(o Token) bool { return o.ID == e.token.ID })
		if i < 0 {
			return nil, spool.ErrNotFound
		}
		all[i].LastUsed = now
		return all, nil
	})
}

// byToken returns the subject of the token with an id. It returns nil if there is no
// such token, or if it has expired.
func (t *Tokens) byToken(id string) (*Subject, error) {
	e, err := t.lookup(id)
	if err != nil || e == nil {
		return nil, err
	}
	s, err := t.enter(e)
	if err != nil {
		return nil, nil
	}
	return s, nil
}

// Valid implements [Authenticator]. While the file cannot be read, connections
// stay as they are.
func (t *Tokens) Valid(s *Subject) error {
	if err := s.expired(t.now()); err != nil {
		return err
	}
	if s.token == "" || s.file != t.path { // of another authenticator
		return nil
	}
	e, err := t.lookup(s.token)
	if err != nil {
		return nil
	}
	if e == nil || t.maker(e) != nil {
		return fmt.Errorf("%w: the token of %s was revoked", spool.ErrDenied, s)
	}
	now := e.token.subject()
	if now.Name != s.Name || !slices.Equal(now.Scopes, s.Scopes) || now.Quotas != s.Quotas || !now.equal(&s.Narrow) || !now.Expires.Equal(s.Expires) {
		return fmt.Errorf("%w: the token of %s was changed", spool.ErrDenied, s)
	}
	return nil
}
