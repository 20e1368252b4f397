package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// sessionView is a session of a page as it is shown: without its digests.
type sessionView struct {
	ID      string    `json:"id"`
	Token   string    `json:"token,omitempty"` // its id; none means the owner
	From    string    `json:"from,omitempty"`
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
}

// sessions returns the sessions of pages, and the path of their file.
func (a *app) sessions() ([]access.Session, string, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, access.SessionFileName)
	all, err := access.ListSessions(path)
	return all, path, err
}

func (a *app) listSessions(asJSON bool) error {
	all, _, err := a.sessions()
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a.stdout)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "ID\tTOKEN\tFROM\tSEEN\tEXPIRES")
	}
	for i := range all {
		s := &all[i]
		if asJSON {
			if err := enc.Encode(sessionView{s.ID, s.Token, s.From, s.Created, s.Seen, s.Expires()}); err != nil {
				return err
			}
			continue
		}
		who, expires := s.Token, "expired"
		if who == "" {
			who = access.Owner().String()
		}
		if left := time.Until(s.Expires()); left > 0 {
			expires = "in " + formatAge(left)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s ago\t%s\n", plain(s.ID), plain(who), plain(s.From), formatAge(time.Since(s.Seen)), expires)
	}
	return w.Flush()
}

// sessionIDs returns the ids of sessions, but these.
func (a *app) sessionIDs(but []string) []string {
	all, _, _ := a.sessions() // without sessions there is nothing to complete
	var ids []string
	for i := range all {
		if !slices.Contains(but, all[i].ID) {
			ids = append(ids, all[i].ID)
		}
	}
	return ids
}

func (a *app) revokeSessions(ids []string) error {
	_, path, err := a.sessions()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		err := access.RevokeSession(path, id)
		if errors.Is(err, spool.ErrNotFound) {
			err = &hintedError{err, `"spool token list --sessions" shows the sessions`}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
