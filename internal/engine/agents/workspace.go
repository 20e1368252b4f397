package agents

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/workspace"
)

// noteChanges logs, at the end of a turn, what the run has changed in its workspace,
// unless that was logged before.
func (s *session) noteChanges(t *talk.Turn) {
	if s.workspaceDir == "" {
		return
	}
	w, err := workspace.Open(s.workspaceDir)
	var summary *workspace.Summary
	if err == nil {
		summary, err = w.Note()
	}
	switch {
	case err != nil:
		t.Notice("warning", workspace.NoticeChanges, "what the run changed could not be listed: "+err.Error())
	case summary != nil:
		t.Put(spool.KindNotice, summary.Notice(), nil)
	}
}
