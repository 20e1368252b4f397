package export

import (
	"context"
	"encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// keptDisplays is how many displays with an id a survey remembers. Later ones are shown
// as they were at first.
const keptDisplays = 100_000

// survey is what must be known of the whole log of an interpreter before it is shown:
// which displays were updated and which output was taken back.
type survey struct {
	last    map[string]spool.Seq    // the last state of a display with an id
	cleared map[spool.Seq]spool.Seq // by turn, what was shown before this event is gone
}

// surveyOf reads the log of an interpreter. For others it reads nothing.
func surveyOf(ctx context.Context, l *log) (*survey, error) {
	s := &survey{last: make(map[string]spool.Seq), cleared: make(map[spool.Seq]spool.Seq)}
	if l.info.Engine != python.EngineKernel && l.info.Engine != python.EngineSandbox {
		return s, nil
	}
	waiting := make(map[spool.Seq]bool) // turns that clear when the next thing is shown
	err := l.each(ctx, func(e *spool.Event) error {
		var d python.Display
		switch {
		case e.Kind == spool.KindDone:
			delete(waiting, e.Turn)
			return nil
		case e.Kind == python.KindDisplay && json.Unmarshal(e.Data, &d) == nil:
		case e.Kind != spool.KindOutput && e.Kind != python.KindResult:
			return nil
		}
		switch {
		case d.Clear && d.Wait:
			waiting[e.Turn] = true
			return nil
		case d.Clear:
			s.cleared[e.Turn] = e.Seq
		case waiting[e.Turn]:
			s.cleared[e.Turn] = e.Seq
			delete(waiting, e.Turn)
		}
		if _, known := s.last[d.ID]; d.ID != "" && (known || !d.Update && len(s.last) < keptDisplays) {
			s.last[d.ID] = e.Seq
		}
		return nil
	})
	return s, err
}

// gone reports whether the output of an event was taken back.
func (s *survey) gone(e *spool.Event) bool {
	switch e.Kind {
	case spool.KindOutput, python.KindDisplay, python.KindResult:
		return e.Seq < s.cleared[e.Turn]
	}
	return false
}

// shown returns the event to show instead of an event: the last state of a display, or
// nil if there is nothing to show.
func (s *survey) shown(ctx context.Context, l *log, e *spool.Event) (*spool.Event, error) {
	if s.gone(e) {
		return nil, nil
	}
	var d python.Display
	if e.Kind != python.KindDisplay || json.Unmarshal(e.Data, &d) != nil {
		return e, nil
	}
	if d.Clear {
		return nil, nil
	}
	last, known := s.last[d.ID]
	switch {
	case d.ID == "" || !known:
		return e, nil
	case d.Update: // it was shown where it first came
		return nil, nil
	case last == e.Seq:
		return e, nil
	}
	return l.at(ctx, last)
}
