package access

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// TestTicketsAreBounded checks how long tickets are valid, and how many there are.
func TestTicketsAreBounded(t *testing.T) {
	sessions, err := OpenSessions(filepath.Join(t.TempDir(), SessionFileName))
	if err != nil {
		t.Fatal(err)
	}
	session, cookie, _, err := sessions.Begin(Owner(), "")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tickets := NewTickets(sessions)
	tickets.now = func() time.Time { return now }
	page := &Subject{session: session.ID}
	request := pageRequest("localhost:7766", cookie, "")
	old, _, err := tickets.Make(page, "/v1/runs/r", false)
	if err != nil {
		t.Fatal(err)
	}
	stream, _, err := tickets.Make(page, "/v1/runs/r/events", true)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(TicketFor)
	if _, _, err := tickets.Use(request, old); !errors.Is(err, errExpired) {
		t.Errorf("after a minute: %v", err)
	}
	if s, target, err := tickets.Use(request, stream); err != nil || target != "/v1/runs/r/events" || s.Session() != session.ID {
		t.Errorf("a stream after a minute: %s, %v", target, err)
	}
	for i := range MaxTickets {
		if _, _, err := tickets.Make(page, fmt.Sprint(i), false); err != nil {
			t.Fatal(err)
		}
	}
	if len(tickets.all) != MaxTickets || len(tickets.order) != MaxTickets {
		t.Errorf("there are %d tickets", len(tickets.all))
	}
	if _, _, err := tickets.Use(request, stream); !errors.Is(err, errInvalid) {
		t.Errorf("the oldest ticket: %v", err)
	}
	if _, _, err := tickets.Make(Owner(), "/", false); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("without a session: %v", err)
	}
}

// TestSharesAreBounded checks how many shares and how many runs of a token there are,
// and that shares which expired make room.
func TestSharesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), ShareFileName)
	all := make([]Token, MaxShares)
	for i := range all {
		all[i] = Token{
			ID: fmt.Sprintf("%08d", i), Name: fmt.Sprintf("share-%08d", i), SHA256: digestOf("x"), Scopes: Scopes{Read},
			Narrow: Narrow{Runs: []spool.RunID{"r"}}, Created: time.Now(), Expires: time.Now().Add(time.Hour),
		}
	}
	write := func() {
		t.Helper()
		if err := changeTokens(path, func([]Token) ([]Token, error) { return all, nil }); err != nil {
			t.Fatal(err)
		}
	}
	write()
	share := Share{Run: spool.Info{ID: "r"}}
	if _, _, err := CreateShare(path, Owner(), share); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("too many shares: %v", err)
	}
	all[0].Expires = time.Now().Add(-time.Hour)
	write()
	if _, _, err := CreateShare(path, Owner(), share); err != nil {
		t.Errorf("after one expired: %v", err)
	}
	many := Narrow{Runs: make([]spool.RunID, maxRuns+1)}
	for i := range many.Runs {
		many.Runs[i] = spool.RunID(fmt.Sprint("r", i))
	}
	if err := many.check(nil); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("too many runs: %v", err)
	}
	if err := (&Narrow{Runs: many.Runs[1:]}).check(nil); err != nil {
		t.Error(err)
	}
}
