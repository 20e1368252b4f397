package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/store"
)

// Backend is the runs of a state directory. It is safe for concurrent use.
//
// Close ends the use of the directory. Runs go on in their keeper, unless
// [Options.InProcess] was set: then Close stops them and waits for their end.
type Backend interface {
	spool.Backend
	io.Closer
}

// Options configure [Open]. The zero value is usable.
type Options struct {
	// InProcess executes runs as children of this process, without a
	// keeper: they end with Close. If this process is killed, they go on
	// until the next Open of the directory ends them. It saves the keeper
	// process where runs need not outlive the program.
	InProcess bool

	// RetainAge is how long the log of a run is kept after its end; zero
	// means [DefaultRetainAge]. RetainBytes bounds what all logs take, the
	// oldest go first; zero means [DefaultRetainBytes].
	RetainAge   time.Duration
	RetainBytes int64
	// RetainRuns bounds the number of finished runs, the oldest go first; zero
	// means no bound.
	RetainRuns int
	// RetainLabels is how long runs with a label are kept, in place of
	// RetainAge. A key is the name of a label, or name=value; negative means
	// forever. Of several that are about one run, the longest time counts. A
	// run with the label keep=forever is never deleted, also not for
	// RetainBytes and RetainRuns.
	RetainLabels map[string]time.Duration
	// CompressAfter is how long after the end of a run its log is compressed,
	// which readers do not notice; zero means [DefaultCompressAfter], negative
	// means never.
	CompressAfter time.Duration
	// Sync says what a crash of the machine may lose. A crash of Spool
	// loses nothing.
	Sync SyncPolicy

	// Limits are the defaults of the runs that this backend starts.
	Limits spool.Limits

	// Archive, if not nil, has the logs of finished runs that the state
	// directory does not have: they are found by their ids and read as others
	// are, but are not listed. It has no effect with InProcess.
	Archive Archive
}

// Archive fetches finished runs. The error of both methods is [spool.ErrNotFound] if
// there is no such run, or no such blob.
type Archive interface {
	// Fetch returns a state directory that has the log of a run.
	Fetch(ctx context.Context, id spool.RunID) (dir string, err error)
	// FetchBlob returns a state directory that has a blob of a run.
	FetchBlob(ctx context.Context, id spool.RunID, d spool.Digest) (dir string, err error)
}

// The defaults of [Options].
const (
	DefaultRetainAge   = host.DefaultRetainAge   // 7 days
	DefaultRetainBytes = host.DefaultRetainBytes // 16 GiB

	DefaultCompressAfter = host.DefaultCompressAfter // 10 minutes
)

// SyncPolicy says when logs are flushed to the disk.
type SyncPolicy string

// The sync policies.
const (
	SyncNone     SyncPolicy = ""         // when the operating system does
	SyncInterval SyncPolicy = "interval" // at least once a second
	SyncAlways   SyncPolicy = "always"   // before an event is shown to any reader
)

// errNoChildMain is what Open says to a program that forgot [ChildMain].
var errNoChildMain = errors.New("this program did not call local.ChildMain: add it as the first statement of main " +
	"(of TestMain in tests), because Spool executes this program again for its child processes")

// Open opens a state directory, which any number of processes may have open
// at once. An empty dir means [DefaultDir]. If a keeper, or a program with
// [Options.InProcess], was killed, Open ends the runs it left and closes their
// logs with an unknown outcome. Open does not touch runs whose keeper is alive,
// even if the program that started them is gone.
func Open(dir string, o Options) (Backend, error) {
	if !childMainCalled.Load() {
		return nil, fmt.Errorf("open %s: %w", cmp.Or(dir, "the state directory"), errNoChildMain)
	}
	switch o.Sync {
	case SyncNone, SyncInterval, SyncAlways:
	default:
		return nil, fmt.Errorf("%w: sync policy %q: use local.SyncNone, SyncInterval or SyncAlways", spool.ErrInvalid, o.Sync)
	}
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the state directory: %w", err)
	}
	p := logPolicy{
		sync:      store.SyncPolicy(o.Sync),
		retention: store.Retention{Age: o.RetainAge, TotalBytes: o.RetainBytes, Runs: o.RetainRuns, Compress: o.CompressAfter},
	}
	for _, label := range slices.Sorted(maps.Keys(o.RetainLabels)) {
		rule, err := store.ParseLabel(label, o.RetainLabels[label])
		if err != nil {
			return nil, err
		}
		p.retention.Labels = append(p.retention.Labels, rule)
	}
	// The defaults stay zero, so that all that ask for nothing special
	// share a keeper.
	if o.RetainAge == DefaultRetainAge {
		p.retention.Age = 0
	}
	if o.RetainBytes == DefaultRetainBytes {
		p.retention.TotalBytes = 0
	}
	if o.CompressAfter == DefaultCompressAfter {
		p.retention.Compress = 0
	}
	if o.InProcess {
		h, err := host.Open(p.host(dir))
		if err != nil {
			return nil, err
		}
		return &inProcess{h, o.Limits}, nil
	}
	b, err := openKeeper(dir, p, o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// inProcess is a host with default limits.
type inProcess struct {
	*host.Host
	limits spool.Limits
}

// Start implements [spool.Backend].
func (b *inProcess) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	spec.Limits = keeper.WithDefaults(&spec, b.limits)
	return b.Host.Start(ctx, spec)
}

// DefaultDir is the state directory of the user: $SPOOL_STATE, or spool in
// $XDG_STATE_HOME, or ~/.local/state/spool. The spool command uses the same.
func DefaultDir() (string, error) {
	if dir := os.Getenv("SPOOL_STATE"); dir != "" {
		return filepath.Abs(dir)
	}
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the standard says to ignore relative ones
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the state directory: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "spool"), nil
}
