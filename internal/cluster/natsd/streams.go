package natsd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool/internal/pause"
)

// The streams of the cluster. A stream has one message for a subject, the present
// fact; its sequence is the revision that the next writer must name.
const (
	nodeStream = "SPOOL_NODES"
	runStream  = "SPOOL_RUNS"
	// These are part of older stores only.
	metaStream  = "SPOOL_META"
	queueStream = "SPOOL_QUEUE"

	subjects = "spool.v1."
	saw      = "spool.v1.saw." // what was written is told on a subject that begins so

	duplicates   = 2 * time.Minute // how long the store knows an attempt again
	maxConsumers = 64
)

// codeNoReplicas says that a server is no part of a cluster of servers, so that nobody
// else can hold a copy.
const codeNoReplicas = jetstream.ErrorCode(10074)

// stream has the facts of some kinds.
type stream struct {
	name  string
	kinds []string
	told  string // the kind that nodes watch; "*" means all
	leave bool   // facts may leave after some time
}

// layout is the streams of a store.
type layout []stream

var (
	// present is the layout of a store that is made now. The servers of a stream talk to
	// each other every second, so that there are few streams: of facts that are few and
	// written all the time, and of facts about runs.
	present = layout{
		{name: nodeStream, kinds: []string{"meta", "node"}, told: "*"},
		{name: runStream, kinds: []string{"run", "name", "queue"}, told: "queue", leave: true},
	}
	// older is the layout of stores that were made before that.
	older = layout{
		{name: metaStream, kinds: []string{"meta"}, told: "meta"},
		{name: nodeStream, kinds: []string{"node"}, told: "node"},
		{name: runStream, kinds: []string{"run", "name"}, leave: true},
		{name: queueStream, kinds: []string{"queue"}, told: "queue", leave: true},
	}
)

// streamOf returns the name of the stream with the facts whose key begins with a prefix.
func (l layout) streamOf(prefix string) string {
	kind, _, _ := strings.Cut(prefix, ".")
	for _, s := range l {
		if slices.Contains(s.kinds, kind) {
			return s.name
		}
	}
	return ""
}

// config returns what a stream is made with. It uses nothing that a server of an earlier
// version lacks.
func (s *stream) config(replicas int) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: s.name, Storage: jetstream.FileStorage, Replicas: replicas, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld, Duplicates: duplicates,
		MaxConsumers: maxConsumers, AllowMsgTTL: s.leave,
	}
	for _, kind := range s.kinds {
		c.Subjects = append(c.Subjects, subjects+kind+".*")
	}
	switch s.told {
	case "":
	case "*":
		c.RePublish = &jetstream.RePublish{Source: subjects + "*.*", Destination: saw + "{{wildcard(1)}}.{{wildcard(2)}}"}
	default:
		c.RePublish = &jetstream.RePublish{Source: subjects + s.told + ".*", Destination: saw + s.told + ".{{wildcard(1)}}"}
	}
	return c
}

// makeStreams creates what is missing, for as long as the servers need to find a leader.
func (f *Facts) makeStreams(ctx context.Context) {
	for {
		l, err := f.tryStreams(ctx)
		if err == nil {
			f.streams.Store(&l)
			return
		}
		if ctx.Err() != nil {
			return
		}
		f.log.Info("the streams of the cluster cannot be made yet", "err", err)
		if pause.For(ctx, 5*attemptPause) != nil {
			return
		}
	}
}

// tryStreams creates what is missing, and returns the layout.
func (f *Facts) tryStreams(ctx context.Context) (layout, error) {
	l, err := f.findLayout(ctx)
	if err != nil {
		return nil, err
	}
	if len(l) == 0 {
		l = present
	}
	for i := range l {
		if err := f.makeStream(ctx, &l[i]); err != nil {
			return nil, err
		}
	}
	is, err := f.findLayout(ctx)
	if err == nil && len(is) != len(l) {
		err = errors.New("an older version of Spool made them at the same time")
	}
	return l, err
}

// findLayout returns the layout of the streams that there are, an empty one if there are
// none.
func (f *Facts) findLayout(ctx context.Context) (layout, error) {
	for _, old := range older {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		s, err := f.js.Stream(ctx, old.name)
		cancel()
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return nil, fmt.Errorf("look for stream %s: %w", old.name, err)
		case len(s.CachedInfo().Config.Subjects) == len(old.kinds):
			return older, nil
		default:
			return present, nil
		}
	}
	return layout{}, nil
}

// makeStream creates a stream, unless it exists.
func (f *Facts) makeStream(ctx context.Context, s *stream) error {
	for replicas := f.replicas; ; replicas = 1 {
		actx, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := f.js.CreateStream(actx, s.config(replicas))
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.ErrorCode == codeNoReplicas && replicas > 1 {
			f.log.Warn("the store of the cluster is one server, which holds all facts alone")
			continue
		}
		return fmt.Errorf("make stream %s: %w", s.name, err)
	}
}
