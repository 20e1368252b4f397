package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"
)

const (
	// CodeFor is how long a one-time code is valid.
	CodeFor = 10 * time.Minute
	// MaxCodes is how many codes are pending. A further one takes the place of
	// the oldest. Neither has a flag: a code is used at once, and who waits longer asks
	// for another.
	MaxCodes = 16

	codeSize = 22 // characters of base 62: 131 bits
)

// Codes are the one-time codes with which the owner of the machine signs in a page.
// They are in memory alone, and only as digests. It is safe for concurrent use; the
// zero value is not: use [NewCodes].
type Codes struct {
	now func() time.Time

	mu      sync.Mutex
	pending []code // the oldest first
}

type code struct {
	digest  [sha256.Size]byte
	expires time.Time
}

// NewCodes returns no codes yet.
func NewCodes() *Codes { return &Codes{now: time.Now} }

// Make returns a new code.
func (c *Codes) Make() string {
	text := randomText(codeSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= MaxCodes {
		c.pending = append(c.pending[:0], c.pending[len(c.pending)-MaxCodes+1:]...)
	}
	c.pending = append(c.pending, code{sha256.Sum256([]byte(text)), c.now().Add(CodeFor)})
	return text
}

// Pending returns how many codes could still be used.
func (c *Codes) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for i := range c.pending {
		if c.now().Before(c.pending[i].expires) {
			n++
		}
	}
	return n
}

// use takes a code. The error is a [*Refusal].
func (c *Codes) use(text string) error {
	digest := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	found := -1
	for i := range c.pending {
		if subtle.ConstantTimeCompare(digest[:], c.pending[i].digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return errInvalid
	}
	expired := !c.now().Before(c.pending[found].expires)
	c.pending = append(c.pending[:found], c.pending[found+1:]...)
	if expired {
		return errExpired
	}
	return nil
}
