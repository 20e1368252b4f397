package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/spool-run/spool"
)

// OpenAsk is an ask that waits for its answer.
type OpenAsk struct {
	Run    spool.RunID `json:"run"`
	Seq    spool.Seq   `json:"seq"` // of its event
	Time   time.Time   `json:"time"`
	Turn   spool.Seq   `json:"turn,omitempty"`
	Name   string      `json:"name,omitempty"` // of the run
	Engine string      `json:"engine"`
	Cwd    string      `json:"cwd,omitempty"`
	Ask    spool.Ask   `json:"ask"`
}

// AskList is all open asks, the oldest first.
type AskList struct {
	Asks []OpenAsk `json:"asks"`
	// Version is another one as soon as the set of asks is.
	Version string `json:"version"`
}

// askPlace is where an ask is.
type askPlace struct {
	run spool.RunID
	seq spool.Seq
}

// askList keeps the open asks of the runs that it is told about.
type askList struct {
	call  *call
	runs  []string // only of these; without any, of all
	kinds []string
	open  map[spool.RunID]*spool.Info // runs with open asks
	known map[askPlace]*OpenAsk       // nil for one that is of no interest
	told  string                      // the version that was last asked for
	force bool                        // it counts as changed
}

func newAskList(c *call, runs, kinds []string) *askList {
	return &askList{call: c, runs: runs, kinds: kinds, open: make(map[spool.RunID]*spool.Info), known: make(map[askPlace]*OpenAsk)}
}

// note takes the description of a run.
func (l *askList) note(info *spool.Info) {
	if info.Asks == nil || len(l.runs) > 0 && !slices.Contains(l.runs, string(info.ID)) {
		delete(l.open, info.ID)
		return
	}
	l.open[info.ID] = info
}

// changed reports whether the set of asks may differ from that of the last call.
func (l *askList) changed() bool {
	version := l.places()
	defer func() { l.told, l.force = version, false }()
	return l.force || version != l.told
}

// places names all asks.
func (l *askList) places() string {
	var all []string
	for id, info := range l.open {
		all = append(all, fmt.Sprint(id, info.Asks.Open, info.Asks.Count))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// load reads the asks that are not known.
func (l *askList) load() error {
	known := make(map[askPlace]*OpenAsk, len(l.known))
	for id, info := range l.open {
		for _, seq := range info.Asks.Open {
			at := askPlace{id, seq}
			if ask, ok := l.known[at]; ok {
				known[at] = ask
				continue
			}
			page, err := l.call.backend.Read(l.call.ctx, id, spool.Query{After: seq - 1, MaxBytes: 1})
			if errors.Is(err, spool.ErrNotFound) { // it was removed
				continue
			}
			if err != nil {
				return err
			}
			if len(page.Events) == 0 || page.Events[0].Seq != seq || page.Events[0].Kind != spool.KindAsk {
				known[at] = nil
				continue
			}
			e := &page.Events[0]
			ask := &OpenAsk{Run: id, Seq: seq, Time: e.Time, Turn: e.Turn, Name: info.Name, Engine: info.Engine, Cwd: info.Cwd}
			if json.Unmarshal(e.Data, &ask.Ask) != nil || len(l.kinds) > 0 && !slices.Contains(l.kinds, ask.Ask.Kind) {
				ask = nil
			}
			known[at] = ask
		}
	}
	l.known = known
	return nil
}

// list returns the asks that were loaded.
func (l *askList) list() *AskList {
	result := &AskList{Asks: []OpenAsk{}, Version: l.version()}
	for _, ask := range l.known {
		if ask != nil {
			result.Asks = append(result.Asks, *ask)
		}
	}
	slices.SortFunc(result.Asks, func(a, b OpenAsk) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq))
	})
	return result
}

// version is a digest of the set of asks that were loaded: no server has to remember
// what it told whom.
func (l *askList) version() string {
	var all []string
	for at, ask := range l.known {
		if ask != nil {
			all = append(all, fmt.Sprint(at.run, " ", at.seq, " ", ask.Time.UnixNano()))
		}
	}
	slices.Sort(all)
	h := fnv.New64a()
	for _, text := range all {
		_, _ = h.Write([]byte(text + "\n")) // never fails
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
