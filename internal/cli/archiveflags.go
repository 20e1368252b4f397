package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/archive/place"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/local"
)

// archiveOptions are the flags about the archive that every command has.
type archiveOptions struct {
	url         string
	credentials string // a file
}

// add defines the flags.
func (o *archiveOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "archive", "", "`URL` of an archive of finished runs: dir:PATH, s3://BUCKET/PREFIX?endpoint=URL or nats://HOST:PORT/BUCKET, or cluster: for the store of the cluster of this machine (default $SPOOL_ARCHIVE)")
	flags.StringVar(&o.credentials, "archive-credentials", "", "`file` with the credentials of the archive, as ~/.aws/credentials has them, or of NATS (default the environment and files of AWS)")
}

// openArchive opens the place of the archive.
func (a *app) openArchive() (archive.Objects, error) {
	if a.archive.url == "" {
		return nil, usageErrorf("name an archive with --archive, SPOOL_ARCHIVE, or the key archive of the configuration file")
	}
	o, err := place.Open(a.archive.url, place.Options{Credentials: a.archive.credentials, Plaintext: a.plaintext, Cluster: a.clusterStore})
	switch {
	case errors.Is(err, spool.ErrInvalid):
		return nil, usageErrorf("--archive: %v", err)
	case errors.Is(err, place.ErrPlaintext):
		return nil, &hintedError{err, "use an https:// endpoint or a tls:// URL, or add --insecure-plaintext"}
	case errors.Is(err, os.ErrNotExist):
		return nil, &hintedError{err, "an archive is never made by itself: is its disk mounted? Otherwise make the directory"}
	}
	return o, err
}

// clusterStore returns where the store of the cluster of this machine is, and how to
// connect to it.
func (a *app) clusterStore() (string, *tls.Config, error) {
	dir, err := a.stateDir()
	if err != nil {
		return "", nil, err
	}
	m, err := cluster.LoadMembership(dir)
	if err != nil {
		return "", nil, fmt.Errorf("the archive cluster: %w", err)
	}
	servers, err := storeURLs(m.Control)
	if err == nil && servers == "" {
		err = &hintedError{errors.New("the cluster of this machine names no control nodes, whose store others could use"), "use an archive of the form dir: or nats:, or name control nodes with \"spool cluster init --control\""}
	}
	if err != nil {
		return "", nil, err
	}
	config, err := m.Key.TLS("archive")
	return servers, config, err
}

// readArchive gives the options of a backend the archive, if there is one. It is opened
// when a run is asked for that this machine does not have.
func (a *app) readArchive(o *local.Options) {
	if a.archive.url != "" {
		o.Archive = &lazyArchive{app: a}
	}
}

// lazyArchive is the archive as the backend of this machine reads it.
type lazyArchive struct {
	app   *app
	mu    sync.Mutex
	cache *archive.Cache
}

func (l *lazyArchive) open() (*archive.Cache, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache != nil {
		return l.cache, nil
	}
	objects, err := l.app.openArchive()
	if err != nil {
		return nil, err
	}
	dir, err := l.app.stateDir()
	if err != nil {
		return nil, err
	}
	l.cache = archive.NewCache(objects, dir, int64(l.app.store.cache))
	return l.cache, nil
}

// Fetch implements [local.Archive].
func (l *lazyArchive) Fetch(ctx context.Context, id spool.RunID) (string, error) {
	c, err := l.open()
	if err != nil { // runs of this machine are found without it
		return "", fmt.Errorf("run %s: %w here, and the archive cannot be opened: %w", id, spool.ErrNotFound, err)
	}
	return c.Fetch(ctx, id)
}

// FetchBlob implements [local.Archive].
func (l *lazyArchive) FetchBlob(ctx context.Context, id spool.RunID, d spool.Digest) (string, error) {
	c, err := l.open()
	if err != nil {
		return "", err
	}
	return c.FetchBlob(ctx, id, d)
}

// shipOptions are the flags of a server that ships its runs to the archive.
type shipOptions struct {
	rate        byteCount
	uploads     int
	pending     byteCount
	retainAge   time.Duration
	retainBytes byteCount
}

// add defines the flags.
func (o *shipOptions) add(flags *pflag.FlagSet) {
	o.rate, o.pending = archive.DefaultRate, archive.DefaultPending
	flags.Var(&o.rate, "archive-rate", "upload at most this many `bytes` a second to the archive")
	flags.IntVar(&o.uploads, "archive-uploads", archive.DefaultUploads, "upload this `number` of runs at once to the archive")
	flags.Var(&o.pending, "archive-pending", "`bytes` of runs that may wait for the archive, also after they were deleted here")
	flags.DurationVar(&o.retainAge, "archive-retain-age", 0, "remove runs from the archive this `time` after they ended; runs that --retain-label keeps longer stay (default never)")
	flags.Var(&o.retainBytes, "archive-retain-bytes", "remove the oldest runs from the archive when it has more `bytes` (default any number)")
	flags.Lookup("archive-retain-bytes").DefValue = ""
}

// shipper returns what brings the runs of this machine to the archive. An empty name of
// the node is that of the machine.
func (a *app) shipper(o *shipOptions, node string, labels map[string]time.Duration, log *slog.Logger) (*archive.Shipper, archive.Objects, error) {
	if o.rate <= 0 || o.uploads <= 0 || o.pending <= 0 || o.retainAge < 0 || o.retainBytes < 0 {
		return nil, nil, usageErrorf("a limit of the archive must be greater than zero")
	}
	objects, err := a.openArchive()
	if err != nil {
		return nil, nil, err
	}
	dir, err := a.stateDir()
	if err != nil {
		return nil, nil, err
	}
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			node = "unknown"
		}
	}
	return archive.NewShipper(objects, archive.ShipOptions{
		Dir: dir, Node: node, Rate: int64(o.rate), Uploads: o.uploads, Pending: int64(o.pending), Logger: log,
		Retention: archive.Retention{Age: o.retainAge, Bytes: int64(o.retainBytes), Labels: labels},
	}), objects, nil
}

// shipping is a shipper that works in the background.
type shipping struct {
	shipper *archive.Shipper
	stop    context.CancelFunc
	ended   chan error
	objects archive.Objects
}

// startShipping ships until Close, if there is an archive; otherwise it returns nil.
func (a *app) startShipping(ctx context.Context, o *serveOptions, log *slog.Logger) (*shipping, error) {
	if a.archive.url == "" {
		return nil, nil
	}
	opts, err := o.server.store.options()
	if err != nil {
		return nil, err
	}
	s, objects, err := a.shipper(&o.ship, o.cluster.node, opts.RetainLabels, log)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &shipping{shipper: s, stop: stop, ended: make(chan error, 1), objects: objects}
	go func() { w.ended <- s.Run(ctx) }()
	return w, nil
}

// Close ends shipping. What waits is shipped by the next server.
func (w *shipping) Close() error {
	if w == nil {
		return nil
	}
	w.stop()
	return errors.Join(<-w.ended, w.objects.Close())
}

// has returns the function that tells whether the archive has a run, nil without one.
func (w *shipping) has() func(context.Context, spool.RunID) (bool, error) {
	if w == nil {
		return nil
	}
	return archive.New(w.objects).Has
}

// gauges tells how shipping gets on, for /metrics.
func (w *shipping) gauges(gauge func(name, help string, value float64)) {
	if w == nil {
		return
	}
	st := w.shipper.Status()
	var waiting float64
	if st.PendingRuns > 0 {
		waiting = time.Since(st.PendingSince).Seconds()
	}
	gauge("spool_archive_shipped_runs", "Runs that this server brought to the archive.", float64(st.ShippedRuns))
	gauge("spool_archive_shipped_bytes", "Bytes that this server uploaded to the archive.", float64(st.ShippedBytes))
	gauge("spool_archive_pending_runs", "Runs that wait for the archive.", float64(st.PendingRuns))
	gauge("spool_archive_pending_bytes", "Bytes that wait for the archive.", float64(st.PendingBytes))
	gauge("spool_archive_lag_seconds", "How long the oldest run waits for the archive.", waiting)
	gauge("spool_archive_failures", "Failed attempts since the last success.", float64(st.Failures))
	gauge("spool_archive_failures_total", "Failed attempts.", float64(st.FailuresTotal))
	gauge("spool_archive_conflicts", "Runs of whose ids the archive has another run.", float64(st.Conflicts))
	gauge("spool_archive_full", "Whether no more runs may wait.", map[bool]float64{true: 1}[st.Full])
	gauge("spool_archive_pruned_runs", "Runs that this server removed from the archive.", float64(st.PrunedRuns))
}

// archiveOf names the archive for people.
func archiveOf(st *archive.Status) string { return cmp.Or(plain(st.Archive), "-") }
