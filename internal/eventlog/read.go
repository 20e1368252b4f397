package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"runtime"
	"sort"
	"time"

	"github.com/spool-run/spool"
)

// Read returns the events after a cursor that exist now: at least one if there
// is one, and then as many as fit in maxBytes. The slice is shared: the caller
// must not change it.
func (l *Log) Read(after spool.Seq, maxBytes int) ([]spool.Event, error) {
	if !l.has(after) {
		return nil, nil
	}
	l.mu.Lock()
	if after+1 >= l.first {
		parts := l.since(nil, after, maxBytes)
		l.mu.Unlock()
		return fit(parts, maxBytes), nil
	}
	gap := spool.Truncation{From: after + 1, To: l.first - 1}
	shared := l.shared
	l.mu.Unlock()

	if l.tier == nil {
		return []spool.Event{gapEvent(l.run, gap, l.now())}, nil
	}
	if shared == nil {
		return l.readTier(after, maxBytes)
	}
	// One follower of the crowd reads the tier and the others use its page:
	// that saves work, and all of them hold the same copy.
	if events := shared.find(after + 1); events != nil {
		return fit([][]spool.Event{events}, maxBytes), nil
	}
	shared.fetch.Lock()
	defer shared.fetch.Unlock()
	if events := shared.find(after + 1); events != nil {
		return fit([][]spool.Event{events}, maxBytes), nil
	}
	events, err := l.readTier(after, maxBytes)
	if err == nil {
		shared.keep(events)
	}
	return events, err
}

func (l *Log) readTier(after spool.Seq, maxBytes int) ([]spool.Event, error) {
	events, err := l.tier.Read(nil, after, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read after %d: %w", after, err)
	}
	for i := range events {
		events[i].Run = l.run
	}
	return events, nil
}

// Recent is [Log.Read] from memory only. It returns nothing if some of the
// events are no longer in memory.
func (l *Log) Recent(after spool.Seq, maxBytes int) []spool.Event {
	if !l.has(after) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if after+1 < l.first {
		return nil
	}
	return fit(l.since(nil, after, maxBytes), maxBytes)
}

// has reports whether the log has an event after a cursor.
func (l *Log) has(after spool.Seq) bool {
	last, _ := l.end.get()
	return after < last
}

// since appends to parts the events in memory after a cursor, up to the end of
// the segment with which there are enough bytes. Callers hold l.mu.
func (l *Log) since(parts [][]spool.Event, after spool.Seq, enough int) [][]spool.Event {
	at := sort.Search(len(l.recent), func(i int) bool { return l.recent[i].first > after+1 }) - 1
	for i, s := range l.recent[at:] {
		events := s.events
		if i == 0 {
			events = events[after+1-s.first:]
		}
		parts = append(parts, events)
		if i > 0 { // the size of a part of a segment is not known
			enough -= s.bytes
		}
		if enough < 0 {
			break
		}
	}
	return parts
}

// gapEvent returns the event that stands for lost events. Its seq is that of
// the last of them, so that the reader's cursor moves past the gap.
func gapEvent(run spool.RunID, gap spool.Truncation, now time.Time) spool.Event {
	data, err := json.Marshal(gap)
	if err != nil { // two integers always encode
		panic(err)
	}
	return spool.Event{Run: run, Seq: gap.To, Time: now, Kind: spool.KindTruncated, Data: data}
}

// Follow reads followPage bytes of the tier at a time, or crowdPage bytes for a
// crowd of followers: they share the pages, so that fewer and larger reads cost
// no more memory.
const (
	followPage = 256 << 10
	crowdPage  = 2 << 20
)

// Follow yields every event after the cursor, both existing and future ones, and
// ends after the closed event. An error ends it too.
func (l *Log) Follow(ctx context.Context, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		l.addFollower()
		defer l.removeFollower()
		var parts [][]spool.Event
		for {
			clear(parts) // a waiting follower keeps no events in memory
			if err := l.Wait(ctx, after); err != nil {
				yield(spool.Event{}, err)
				return
			}
			var err error
			var crowded bool
			if parts, crowded, err = l.nextParts(parts[:0], after); err != nil {
				yield(spool.Event{}, err)
				return
			}
			if crowded {
				// Followers of a crowd stay close to each other, and
				// the writer gets the CPU.
				runtime.Gosched()
			}
			for _, part := range parts {
				for i := range part {
					after = part[i].Seq
					if !yield(part[i], nil) || part[i].Kind == spool.KindClosed {
						return
					}
				}
			}
			if len(parts) == 0 { // sealed, and the cursor is at or past the end
				return
			}
		}
	}
}

// nextParts appends to parts the next events of a follower, and reports whether
// it is one of a crowd. It does not copy events that are in memory.
func (l *Log) nextParts(parts [][]spool.Event, after spool.Seq) (_ [][]spool.Event, crowded bool, err error) {
	l.mu.Lock()
	size := followPage
	if crowded = l.shared != nil; crowded {
		size = crowdPage
	}
	if l.has(after) && after+1 >= l.first {
		parts = l.since(parts, after, maxBorrowedCrowd)
		l.mu.Unlock()
		return parts, crowded, nil
	}
	l.mu.Unlock()
	page, err := l.Read(after, size)
	if len(page) > 0 {
		parts = append(parts, page)
	}
	return parts, crowded, err
}

// addFollower counts a follower. With the last one of a crowd, the followers
// begin to share pages and to be woken in groups.
func (l *Log) addFollower() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followers++; l.followers == crowdSize {
		l.shared = new(pages)
		l.waker.startCrowd()
	}
}

// removeFollower is the inverse of addFollower.
func (l *Log) removeFollower() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followers--; l.followers == crowdSize-1 {
		l.shared = nil
		l.waker.endCrowd()
	}
}
