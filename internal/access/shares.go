package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/spool-run/spool"
)

const (
	// ShareFileName is the name of the file of shares in a state directory.
	ShareFileName = "shares.json"
	// ShareFor is how long a share is valid without another wish.
	ShareFor = 24 * time.Hour
	// MaxShares is how many shares there are at once. Like that of tokens, the number has
	// no flag: the servers and commands of a state directory share its file.
	MaxShares = 10_000

	maxShareFile = 16 << 20 // bytes
)

// ShareScopes are the scopes that a share may have.
func ShareScopes() Scopes { return Scopes{Read, Input, Control, Answer} }

// Share is what CreateShare makes a token for: one run, with some scopes.
type Share struct {
	Run spool.Info
	// Scopes always include [Read]. The subject that shares must have each.
	Scopes  Scopes
	Expires time.Time // zero means after [ShareFor]
}

// CreateShare makes a share: a token that sees one run and nothing else. It returns
// the token with its secret, which is nowhere else.
func CreateShare(path string, by *Subject, s Share) (Token, string, error) {
	if by.file != "" && len(by.Runs) > 0 {
		return Token{}, "", fmt.Errorf("share run %s: %w: who sees a run by a share cannot share it", s.Run.ID, spool.ErrDenied)
	}
	if len(s.Scopes) == 0 {
		s.Scopes = Scopes{Read}
	}
	for _, scope := range s.Scopes {
		if !slices.Contains(ShareScopes(), scope) {
			return Token{}, "", fmt.Errorf("share run %s: %w: a share cannot have the scope %s", s.Run.ID, spool.ErrInvalid, scope)
		}
		if err := by.Scopes.Require(scope); err != nil {
			return Token{}, "", fmt.Errorf("share run %s: %w", s.Run.ID, err)
		}
	}
	if !slices.Contains(s.Scopes, Read) {
		s.Scopes = append(Scopes{Read}, s.Scopes...)
	}
	now := time.Now().UTC().Truncate(time.Second)
	if s.Expires.IsZero() {
		s.Expires = now.Add(ShareFor)
	}
	if !s.Expires.After(now) {
		return Token{}, "", fmt.Errorf("share run %s: %w: the share would have expired", s.Run.ID, spool.ErrInvalid)
	}
	if !by.Expires.IsZero() && by.Expires.Before(s.Expires) { // a share is never more than its maker
		s.Expires = by.Expires
	}
	t := Token{
		ID: randomText(tokenIDSize), Created: now, Expires: s.Expires.UTC().Round(time.Second), Scopes: s.Scopes,
		Narrow: Narrow{Runs: []spool.RunID{s.Run.ID}, Of: Label(&s.Run)}, By: by.Name, ByToken: by.token,
	}
	t.Name = "share-" + t.ID
	secret := TokenPrefix + t.ID + "_" + randomText(secretSize)
	digest := sha256.Sum256([]byte(secret))
	t.SHA256 = hex.EncodeToString(digest[:])
	if err := t.check(); err != nil {
		return Token{}, "", err
	}
	err := changeTokens(path, func(all []Token) ([]Token, error) {
		all = slices.DeleteFunc(all, func(o Token) bool { return !now.Before(o.Expires) })
		if len(all) >= MaxShares {
			return nil, fmt.Errorf("%w: there are %d shares, which is the limit", spool.ErrBusy, MaxShares)
		}
		return append(all, t), nil
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("share run %s: %w", s.Run.ID, err)
	}
	return t, secret, nil
}

// ListShares returns the shares of a file that have not expired.
func ListShares(path string) ([]Token, error) {
	all, err := ListTokens(path)
	now := time.Now()
	return slices.DeleteFunc(all, func(t Token) bool { return !now.Before(t.Expires) }), err
}

// MayRevoke reports whether a subject may know of a share, and end it: its maker and
// those who administer the server.
func (s *Subject) MayRevoke(share *Token) bool {
	return s.Scopes.Has(Admin) || len(s.Runs) == 0 && s.Name == share.By
}
