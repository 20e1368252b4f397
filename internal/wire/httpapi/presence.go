package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// The roles of those who are at a run.
const (
	RoleView = "view"
	RoleType = "type"
)

// runsOfVisitor is at how many runs a connection may be.
const runsOfVisitor = 16

// PresenceRequest is the params of run/presence: the connection is at the run from now
// on, in a role; an empty one ends that. The result is a [Presence], and each change of
// it comes as presence/changed, until the role is empty or the connection ends.
type PresenceRequest struct {
	Run  spool.RunID `json:"run"`
	Role string      `json:"role,omitempty"`
}

// Presence is who is at a run.
type Presence struct {
	Run     spool.RunID `json:"run"`
	Viewers []Viewer    `json:"viewers"` // who came first is first
}

// Viewer is somebody at a run.
type Viewer struct {
	ID     int64     `json:"id"`               // of the connection
	Name   string    `json:"name"`             // of the subject
	Device string    `json:"device,omitempty"` // such as Firefox on Linux
	Role   string    `json:"role"`             // view or type
	Since  time.Time `json:"since"`            // of the role
	Self   bool      `json:"self,omitempty"`   // it is the connection that is told

	came int64 // grows with each that comes to the run
}

// presence is who is at which run: connections say so themselves.
type presence struct {
	mu     sync.Mutex
	last   int64 // number of a connection, or of one that came to a run
	byRun  map[spool.RunID]map[*visitor]Viewer
	guests map[guestKey]*guest // pages without a connection
}

// visitor is a connection that may be at runs.
type visitor struct {
	presence *presence
	id       int64
	name     string
	device   string
	notify   func(method string, params any)
	runs     map[spool.RunID]struct{} // guarded by presence.mu
}

// visit returns the visitor of a connection.
func (p *presence) visit(c *call, notify func(method string, params any)) *visitor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visitor(c, notify)
}

// visitor is visit for callers that hold p.mu.
func (p *presence) visitor(c *call, notify func(method string, params any)) *visitor {
	p.last++
	return &visitor{presence: p, id: p.last, name: c.subject.String(), device: deviceOf(c.r.UserAgent()), notify: notify, runs: make(map[spool.RunID]struct{})}
}

// of returns who is at a run. Callers hold p.mu.
func (p *presence) of(run spool.RunID, to *visitor) Presence {
	result := Presence{Run: run, Viewers: []Viewer{}}
	for v, viewer := range p.byRun[run] {
		viewer.Self = v == to
		result.Viewers = append(result.Viewers, viewer)
	}
	slices.SortFunc(result.Viewers, func(a, b Viewer) int { return cmp.Compare(a.came, b.came) })
	return result
}

// tell sends everybody at a run who is there, but not the one who knows already.
func (p *presence) tell(run spool.RunID, knows *visitor) {
	p.mu.Lock()
	news := make(map[*visitor]Presence, len(p.byRun[run]))
	for v := range p.byRun[run] {
		if v != knows {
			news[v] = p.of(run, v)
		}
	}
	p.mu.Unlock()
	for v, now := range news {
		v.notify("presence/changed", now)
	}
}

// at notes the role of a visitor at a run, and returns who is there.
func (v *visitor) at(run spool.RunID, role string) (Presence, error) {
	p := v.presence
	p.mu.Lock()
	if _, here := v.runs[run]; role != "" && !here && len(v.runs) >= runsOfVisitor {
		p.mu.Unlock()
		return Presence{}, fmt.Errorf("presence: %w: a connection is at %d runs at most", spool.ErrBusy, runsOfVisitor)
	}
	before, was := p.byRun[run][v]
	changed := was != (role != "") || before.Role != role
	switch {
	case role == "":
		v.forget(run)
	case changed:
		if p.byRun == nil {
			p.byRun = make(map[spool.RunID]map[*visitor]Viewer)
		}
		if p.byRun[run] == nil {
			p.byRun[run] = make(map[*visitor]Viewer)
		}
		if !was {
			p.last++
			before.came = p.last
		}
		p.byRun[run][v] = Viewer{ID: v.id, Name: v.name, Device: v.device, Role: role, Since: time.Now().UTC(), came: before.came}
		v.runs[run] = struct{}{}
	}
	now := p.of(run, v)
	p.mu.Unlock()
	if changed {
		p.tell(run, v)
	}
	return now, nil
}

// forget notes that the visitor is no longer at a run. Callers hold presence.mu.
func (v *visitor) forget(run spool.RunID) {
	delete(v.runs, run)
	delete(v.presence.byRun[run], v)
	if len(v.presence.byRun[run]) == 0 {
		delete(v.presence.byRun, run)
	}
}

// leave ends all roles of the visitor.
func (v *visitor) leave() {
	p := v.presence
	p.mu.Lock()
	var runs []spool.RunID
	for run := range v.runs {
		runs = append(runs, run)
		v.forget(run)
	}
	p.mu.Unlock()
	for _, run := range runs {
		p.tell(run, v)
	}
}

// getPresence answers with who is at a run.
func (c *call) getPresence() error {
	if _, err := c.backend.Stat(c.ctx, c.run()); err != nil {
		return err
	}
	p := &c.server.presence
	p.mu.Lock()
	now := p.of(c.run(), nil)
	p.mu.Unlock()
	return c.reply(http.StatusOK, now)
}

// deviceOf is what people call the program that names itself so.
func deviceOf(agent string) string {
	find := func(names ...string) string {
		for i := 0; i < len(names); i += 2 {
			if strings.Contains(agent, names[i]) {
				return names[i+1]
			}
		}
		return ""
	}
	browser := find("Edg/", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "Chrome/", "Chrome", "Safari/", "Safari")
	system := find("iPhone", "iPhone", "iPad", "iPad", "Android", "Android", "Windows", "Windows", "Mac OS", "Mac", "Linux", "Linux")
	if browser == "" || system == "" {
		return browser + system
	}
	return browser + " on " + system
}
