package archive_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/archive/place"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/s3test"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/python"
)

// The environment of a child that ships: its state directory and its archive.
const (
	childState = "SPOOL_TEST_SHIP_STATE"
	childURL   = "SPOOL_TEST_SHIP_URL"
)

func TestMain(m *testing.M) {
	if state := os.Getenv(childState); state != "" {
		if err := shipChild(state, os.Getenv(childURL)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// shipChild ships what a state directory has, in a process that may be killed.
func shipChild(state, url string) error {
	if err := failpoint.FromEnv(); err != nil {
		return err
	}
	o, err := place.Open(url, place.Options{Cluster: clusterStore})
	if err != nil {
		return err
	}
	return archive.NewShipper(o, archive.ShipOptions{Dir: state, Node: "child", Uploads: 1}).Flush(context.Background())
}

// eachPlace runs a test against every kind of place.
func eachPlace(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("dir", func(t *testing.T) { test(t, "dir:"+t.TempDir()) })
	t.Run("s3", func(t *testing.T) { test(t, s3test.Start(t).URL) })
	t.Run("nats", func(t *testing.T) { test(t, startNATS(t, nil)+"/logs") })
	t.Run("cluster", func(t *testing.T) {
		key := cluster.NewKey()
		config, err := key.TLS("store")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(clusterKey, hex.EncodeToString(key[:]))
		t.Setenv(clusterServers, "tls://"+strings.TrimPrefix(startNATS(t, config), "tls://"))
		test(t, "cluster:")
	})
}

// The environment has the key and the servers of the cluster of this machine, also for
// children.
const (
	clusterKey     = "SPOOL_TEST_CLUSTER_KEY"
	clusterServers = "SPOOL_TEST_CLUSTER_SERVERS"
)

// clusterStore returns the store of the cluster of this machine.
func clusterStore() (string, *tls.Config, error) {
	b, err := hex.DecodeString(os.Getenv(clusterKey))
	if err != nil {
		return "", nil, err
	}
	config, err := cluster.Key(b).TLS("archive")
	return os.Getenv(clusterServers), config, err
}

// startNATS starts a NATS server and returns its URL.
func startNATS(t *testing.T, config *tls.Config) string {
	t.Helper()
	s, err := natsd.Start(natsd.ServerOptions{Name: "store", Dir: t.TempDir(), Client: "127.0.0.1:0", TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

func openPlace(t *testing.T, url string) archive.Objects {
	t.Helper()
	o, err := place.Open(url, place.Options{Cluster: clusterStore})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// machine is a state directory with finished runs, and what they wrote.
type machine struct {
	dir   string
	store *store.Store
	logs  map[spool.RunID]log
}

type log struct {
	info   spool.Info
	events []spool.Event
	blobs  map[spool.Digest][]byte
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir(), logs: make(map[spool.RunID]log)}
	var err error
	if m.store, err = store.Open(m.dir, store.Options{SegmentBytes: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// run adds a finished run that wrote so many events, some of them with a blob.
func (m *machine) run(t *testing.T, id spool.RunID, events int, labels map[string]string, ended time.Time) {
	t.Helper()
	ended = ended.UTC().Round(0)
	info := spool.Info{ID: id, Name: "n" + string(id), Engine: "kernel", Labels: labels, Created: ended.Add(-time.Minute), State: spool.StateRunning}
	j, err := m.store.Create(info)
	if err != nil {
		t.Fatal(err)
	}
	l := log{blobs: make(map[spool.Digest][]byte)}
	for seq := spool.Seq(1); seq <= spool.Seq(events); seq++ {
		e := spool.Event{Run: id, Seq: seq, Time: ended, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: bytes.Repeat([]byte{byte('a' + seq%26)}, 1000)}
		if seq%50 == 1 {
			content := fmt.Appendf(nil, "blob %s %d", id, seq)
			b, err := m.store.PutBlob("text/plain", bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			l.blobs[b.Digest] = content
			data, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			e = spool.Event{Run: id, Seq: seq, Time: ended, Kind: python.KindDisplay, Data: data}
		}
		if err := j.Append(&e); err != nil {
			t.Fatal(err)
		}
		l.events = append(l.events, e)
	}
	info.State, info.Ended, info.Outcome = spool.StateClosed, ended, &spool.Outcome{Kind: spool.Exited}
	if err := j.Seal(info); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	l.info = m.open(t, m.store, id).Info()
	m.logs[id] = l
}

func (m *machine) open(t *testing.T, s *store.Store, id spool.RunID) *store.Journal {
	t.Helper()
	j, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() }) // open for reading
	return j
}

// shipper returns a shipper of the machine, without waits.
func (m *machine) shipper(o archive.Objects, opts archive.ShipOptions) *archive.Shipper {
	opts.Dir, opts.Node = m.dir, "test"
	if opts.Rate == 0 {
		opts.Rate = -1
	}
	return archive.NewShipper(o, opts)
}

func (m *machine) flush(t *testing.T, o archive.Objects) {
	t.Helper()
	if err := m.shipper(o, archive.ShipOptions{}).Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// compare reads all runs of the machine through a cache in another state directory.
func (m *machine) compare(t *testing.T, o archive.Objects) {
	t.Helper()
	cache := archive.NewCache(o, t.TempDir(), 0)
	for id, want := range m.logs {
		dir, err := cache.Fetch(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j := m.open(t, s, id)
		if diff := cmp.Diff(want.info, j.Info()); diff != "" {
			t.Errorf("run %s (-want +got):\n%s", id, diff)
		}
		got, err := j.Read(nil, 0, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want.events) || len(got) > 0 && !reflect.DeepEqual(want.events, got) {
			t.Errorf("run %s has %d events, want %d, or others", id, len(got), len(want.events))
		}
		for d, content := range want.blobs {
			dir, err := cache.FetchBlob(t.Context(), id, d)
			if err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(dir, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Blob(d)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(b, content) || r.Close() != nil || s.Close() != nil {
				t.Errorf("blob %s is %q: %v", d, b, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// ship ships in a child that dies at failpoints, and reports whether it came to its end.
func (m *machine) ship(t *testing.T, url, failpoints string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childState+"="+m.dir, childURL+"="+url, failpoint.Variable+"="+failpoints, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("%v: %s", err, out)
	}
	return err == nil
}

// keys returns the keys of a place.
func keys(t *testing.T, o archive.Objects, suffix string) []string {
	t.Helper()
	var all []string
	for object, err := range o.List(t.Context(), "runs/") {
		if err != nil {
			t.Fatal(err)
		}
		if ok, _ := filepath.Match("*"+suffix, filepath.Base(object.Key)); ok {
			all = append(all, object.Key)
		}
	}
	return all
}
