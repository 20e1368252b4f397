package acpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/contain"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// labelSession is the label of a run that goes on with a session: the id of its first run.
const labelSession = "spool.session"

// runNumber is the number of a run in its session, from 1 on; zero if it is of another.
// The id of a run that goes on with a session says so, so that two clients that start one
// at once start the same.
func runNumber(session, id spool.RunID) int {
	if id == session {
		return 1
	}
	digits, ok := strings.CutPrefix(string(id), string(session)+"x")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 2 {
		return 0
	}
	return n
}

// runs returns the runs of a session, in order.
func (c *client) runs(ctx context.Context, session spool.RunID) ([]spool.Info, error) {
	first, err := c.opts.Backend.Stat(ctx, session)
	if err == nil && first.Engine != agent.Engine {
		err = fmt.Errorf("run %s is no conversation with an agent: %w", session, spool.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	list := []spool.Info{first}
	for info, err := range c.opts.Backend.List(ctx, spool.Filter{Engine: agent.Engine, Labels: map[string]string{labelSession: string(session)}}) {
		if err != nil {
			return nil, err
		}
		if runNumber(session, info.ID) > 1 {
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b spool.Info) int { return cmp.Compare(runNumber(session, a.ID), runNumber(session, b.ID)) })
	return list, nil
}

// await waits for the run that goes on after one that has ended. It reports false if the
// session is closed.
func (s *session) await(ctx context.Context, after spool.RunID) (spool.Info, bool) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	number := runNumber(s.id, after)
	if w, ok := s.client.opts.Backend.(spool.Watcher); ok {
		watching.Go(func() {
			if !contain.Do(s.client.conn.log, "a connection", func() { s.watch(ctx, w, number) }) {
				s.client.conn.close()
			}
		})
	}
	for {
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing || ctx.Err() != nil {
			return spool.Info{}, false
		}
		runs, err := s.client.runs(ctx, s.id)
		if i := slices.IndexFunc(runs, func(i spool.Info) bool { return runNumber(s.id, i.ID) > number }); err == nil && i >= 0 {
			s.mu.Lock()
			if n := runNumber(s.id, runs[i].ID); n > s.last.number {
				s.last = numbered{runs[i].ID, n}
			}
			s.mu.Unlock()
			return runs[i], true
		}
		var again <-chan time.Time
		if err != nil { // the server is away
			again = time.After(lostPause)
		}
		select {
		case <-s.next:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// watch wakes the reader when there is a run after the one with a number. A watch that
// ends has lost its server: what happened meanwhile the next one tells first.
func (s *session) watch(ctx context.Context, w spool.Watcher, number int) {
	for ctx.Err() == nil {
		for info, err := range w.Watch(ctx, spool.Filter{Labels: map[string]string{labelSession: string(s.id)}}) {
			if err == nil && runNumber(s.id, info.ID) > number {
				s.wake()
			}
		}
		_ = pause.For(ctx, lostPause)
	}
}

// wake has the reader look for another run.
func (s *session) wake() {
	select {
	case s.next <- struct{}{}:
	default:
	}
}

// goOn finds or starts the run that goes on after one that has ended.
func (s *session) goOn(ctx context.Context, after numbered) error {
	c := s.client
	runs, err := c.runs(ctx, s.id)
	if err != nil {
		return err
	}
	last := runs[len(runs)-1]
	if n := runNumber(s.id, last.ID); n <= after.number {
		config, err := s.resumed(ctx, runs)
		if err != nil {
			return err
		}
		s.mu.Lock()
		servers := s.servers
		s.mu.Unlock()
		spec, _ := c.spec(config, runs[0].Cwd, servers)
		spec.ID = spool.RunID(fmt.Sprintf("%sx%d", s.id, n+1))
		if spec.Labels == nil {
			spec.Labels = make(map[string]string)
		}
		spec.Labels[labelSession] = string(s.id)
		// Another client may have been faster, and have configured it otherwise.
		if _, err := c.start(ctx, spec); err != nil && !errors.Is(err, spool.ErrExists) {
			return fmt.Errorf("go on with session %s: %w", s.id, err)
		}
		last.ID = spec.ID
	}
	s.mu.Lock()
	s.last = numbered{last.ID, runNumber(s.id, last.ID)}
	s.mu.Unlock()
	s.wake()
	return nil
}

// resumed is the configuration of a run that goes on after others: it resumes the session
// of the agent in which they worked.
func (s *session) resumed(ctx context.Context, runs []spool.Info) (agent.Config, error) {
	config := s.client.opts.Config
	for _, info := range slices.Backward(runs) {
		started, spoken, err := agentSession(ctx, s.run(info.ID), info.Last)
		if err != nil {
			return config, err
		}
		if started.Agent != "" && started.Agent != config.Agent {
			// What was configured is for another agent.
			config = agent.Config{Agent: started.Agent, Deltas: true, Policy: config.Policy}
			if started.Agent == agent.ACP && len(info.Argv) > 1 {
				config.Command = info.Argv[1:]
			}
		}
		if started.Resume != "" {
			config.Resume = started.Resume
			return config, nil
		}
		if spoken {
			s.tell(info.ID, "⚠ The agent left no session to resume: it does not remember what was said before.\n")
			return config, nil
		}
	}
	return config, nil
}

// agentSession finds in a log the session of the agent; the last one counts. spoken
// reports whether a turn ended.
func agentSession(ctx context.Context, run *spool.Run, last spool.Seq) (started agent.Started, spoken bool, err error) {
	for after := spool.Seq(0); after < last; {
		page, err := run.Read(ctx, spool.Query{After: after})
		if err != nil {
			return started, spoken, err
		}
		for i := range page.Events {
			e := &page.Events[i]
			var d spool.Done
			switch {
			case e.Kind == spool.KindStarted:
				_ = json.Unmarshal(e.Data, &started) // a malformed event names no session
			case e.Kind == spool.KindDone && json.Unmarshal(e.Data, &d) == nil:
				spoken = true
				started.Resume = cmp.Or(d.Resume, started.Resume)
			}
		}
		if len(page.Events) == 0 {
			break
		}
		after = page.Next
	}
	return started, spoken, nil
}

// pageSessions is how many sessions a page of a list has.
const pageSessions = 50

// sessionInfo is a session in a list.
type sessionInfo struct {
	ID        spool.RunID `json:"sessionId"`
	Cwd       string      `json:"cwd"`
	Title     string      `json:"title,omitempty"`
	UpdatedAt string      `json:"updatedAt,omitempty"`
	Meta      meta        `json:"_meta"`
}

func (c *client) listSessions(r *request) (any, error) {
	var p struct {
		Cwd    string `json:"cwd"`
		Cursor string `json:"cursor"`
	}
	if len(r.params) > 0 {
		if err := r.decode(&p); err != nil {
			return nil, err
		}
	}
	sessions := []sessionInfo{}
	listed := make(map[spool.RunID]bool)
	next := ""
	for info, err := range c.opts.Backend.List(c.ctx, spool.Filter{Engine: agent.Engine, After: p.Cursor}) {
		if err != nil {
			if errors.Is(err, spool.ErrInvalid) {
				return nil, err
			}
			c.conn.log.Warn("a run is not listed", "error", err)
			continue
		}
		if p.Cwd != "" && p.Cwd != info.Cwd {
			continue
		}
		// The newest run of a session stands for it.
		id := info.ID
		if first := spool.RunID(info.Labels[labelSession]); runNumber(first, id) > 1 {
			id = first
		} else if p.Cursor != "" && c.goesOn(id) {
			continue // it was on an earlier page
		}
		if listed[id] {
			continue
		}
		if len(sessions) == pageSessions {
			break
		}
		listed[id] = true
		sessions = append(sessions, sessionInfo{id, info.Cwd, cmp.Or(info.Name, info.Title), c.updated(&info).UTC().Format(time.RFC3339Nano),
			meta{place{Run: string(info.ID), Seq: uint64(info.Last)}}})
		next = info.Cursor()
	}
	result := object{"sessions": sessions}
	if len(sessions) == pageSessions {
		result["nextCursor"] = next
	}
	return result, nil
}

// goesOn reports whether another run goes on with a session.
func (c *client) goesOn(session spool.RunID) bool {
	for _, err := range c.opts.Backend.List(c.ctx, spool.Filter{Engine: agent.Engine, Labels: map[string]string{labelSession: string(session)}, Limit: 1}) {
		if err == nil {
			return true
		}
	}
	return false
}

// updated is when something last happened in a run.
func (c *client) updated(info *spool.Info) time.Time {
	if !info.Ended.IsZero() || info.Last == 0 {
		return cmp.Or(info.Ended, info.Created)
	}
	page, err := c.opts.Backend.Read(c.ctx, info.ID, spool.Query{After: info.Last - 1, MaxBytes: 1})
	if err != nil || len(page.Events) == 0 {
		return info.Created
	}
	return page.Events[0].Time
}

// sessionParam decodes the parameters of a request that is about a session.
func sessionParam(r *request) (spool.RunID, error) {
	var p struct {
		ID spool.RunID `json:"sessionId"`
	}
	return p.ID, r.decode(&p)
}

func (c *client) closeSession(r *request) (any, error) {
	id, err := sessionParam(r)
	if err != nil {
		return nil, err
	}
	runs, err := c.runs(c.ctx, id)
	if err != nil {
		return nil, err
	}
	return object{}, c.stop(id, &runs[len(runs)-1])
}

// stop stops the last run of a session and waits for its end.
func (c *client) stop(id spool.RunID, last *spool.Info) error {
	c.mu.Lock()
	s := c.sessions[id]
	delete(c.sessions, id)
	c.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		s.closing = true
		ended := s.ended
		s.mu.Unlock()
		s.wake()
		if ended != nil {
			defer func() { <-ended }()
		}
	}
	run := spool.Attach(c.opts.Backend, last.ID)
	if err := run.Stop(c.ctx); err != nil {
		return err
	}
	_, err := run.Wait(c.ctx)
	return err
}

func (c *client) deleteSession(r *request) (any, error) {
	remover, ok := c.opts.Backend.(spool.Remover)
	if !ok {
		return nil, rpc.Errorf(rpc.CodeMethodNotFound, "sessions cannot be deleted here")
	}
	id, err := sessionParam(r)
	if err != nil {
		return nil, err
	}
	runs, err := c.runs(c.ctx, id)
	if err != nil {
		return nil, err
	}
	last := &runs[len(runs)-1]
	if last.Turn != 0 && last.State != spool.StateClosed {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "the agent works in session %s: close it first", id)
	}
	if err := c.stop(id, last); err != nil {
		return nil, err
	}
	var ids []spool.RunID
	for _, info := range runs {
		ids = append(ids, info.ID)
	}
	_, err = remover.Remove(c.ctx, ids, false)
	return object{}, err
}
