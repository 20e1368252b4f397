package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/bulkconn"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/mirror"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/local"
)

// replicas is how many control nodes hold every fact, if there are so many.
const replicas = 3

// slotsPerCore is how many live runs a node takes for each of its cores by default.
const slotsPerCore = 64

// clusterOptions are the flags of a node of a cluster.
type clusterOptions struct {
	on        bool
	node      string
	listen    string
	advertise string
	nats      string
	creds     string
	labels    []string
	slots     int
	lease     time.Duration
	keep      time.Duration
	queue     int
	tunnels   int
	parked    int

	mirrors     int
	mirrorBytes byteCount
	mirrorFree  byteCount
}

// add defines the flags.
func (o *clusterOptions) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.on, "cluster", false, "be a node of the cluster that this machine has joined")
	flags.StringVar(&o.node, "node", "", "`name` of this node, which must not change (default the name of the machine)")
	flags.StringVar(&o.listen, "cluster-listen", "127.0.0.1:7777", "`address` for other nodes, IP:PORT; a control node also uses the two ports after it")
	flags.StringVar(&o.advertise, "cluster-advertise", "", "`address` at which other nodes reach --cluster-listen, HOST:PORT (default the same); none if they cannot, and this node does not listen but is reached through others")
	flags.StringVar(&o.nats, "cluster-nats", "", "`URL` of NATS servers with JetStream, in place of those that control nodes run")
	flags.StringVar(&o.creds, "cluster-nats-creds", "", "`file` with the credentials for --cluster-nats")
	flags.StringArrayVar(&o.labels, "node-label", nil, "`label` of this node, KEY=VALUE, which runs can ask for, and pool=NAME,… for the queue; repeatable")
	flags.IntVar(&o.slots, "node-runs", slotsPerCore*runtime.NumCPU(), "`number` of live runs that this node takes; 0 means none")
	flags.IntVar(&o.queue, "cluster-queue", cluster.DefaultQueue, "`number` of runs that wait in the queue of the cluster at once, beyond which this node refuses more")
	flags.IntVar(&o.tunnels, "cluster-relay-tunnels", cluster.DefaultTunnels, "`number` of connections between nodes that cannot reach each other which this node relays at once; 0 means none")
	flags.IntVar(&o.parked, "cluster-relay-parked", cluster.DefaultParked, "`number` of connections that a node with --cluster-advertise none keeps at each node through which it is reached, and that this node keeps for each such node")
	o.mirrorBytes, o.mirrorFree = mirror.DefaultBytes, mirror.DefaultFree
	flags.IntVar(&o.mirrors, "mirror", 0, "`number` of other nodes that copy the log of each run of this one while it goes on, 0 or 1")
	flags.Var(&o.mirrorBytes, "mirror-bytes", "`bytes` of the disk that this node uses for copies of logs of other nodes")
	flags.Var(&o.mirrorFree, "mirror-free", "`bytes` of the disk that such copies leave free")
	flags.DurationVar(&o.lease, "cluster-lease", cluster.DefaultLease, "`time` after which a node that does not renew its lease is lost; the same on every node")
	flags.DurationVar(&o.keep, "cluster-keep", cluster.DefaultKeep, "`time` that the cluster knows a run after its end, so that its id is not started again")
}

// check checks the flags.
func (o *clusterOptions) check() error {
	if !o.on {
		return nil
	}
	if o.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the name of this machine: %w", err)
		}
		name, _, _ = strings.Cut(strings.ToLower(name), ".")
		o.node = name
	}
	if err := cluster.CheckNode(o.node); err != nil {
		return usageErrorf("--node %q: %s", o.node, err)
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return usageErrorf("--cluster-listen %q: use IP:PORT, such as 10.0.0.1:7777", o.listen)
	}
	if o.tunnels < 0 || o.parked <= 0 {
		return usageErrorf("--cluster-relay-tunnels must not be negative, and --cluster-relay-parked must be positive")
	}
	if o.slots < 0 || o.keep <= 0 || o.queue <= 0 || o.lease < minLease {
		return usageErrorf("--node-runs, --cluster-keep and --cluster-queue must be positive, and --cluster-lease at least %v", minLease)
	}
	if o.mirrors < 0 || o.mirrors > cluster.MaxMirrors {
		return usageErrorf("--mirror %d: use 0 or 1: at most one other node copies the log of a run", o.mirrors)
	}
	if o.mirrorBytes <= 0 || o.mirrorFree < 0 {
		return usageErrorf("--mirror-bytes must be greater than zero, and --mirror-free not negative")
	}
	for _, l := range o.labels {
		if k, _, ok := strings.Cut(l, "="); !ok || k == "" {
			return usageErrorf("--node-label %q: use KEY=VALUE", l)
		}
	}
	return nil
}

// minLease is the shortest lease.
const minLease = 500 * time.Millisecond

// clusterNode is this server as a node of a cluster. A nil one is none.
type clusterNode struct {
	*cluster.Node
	key    cluster.Key
	facts  *natsd.Facts
	nats   *natsd.Server // nil if this is no control node
	rpc    *execserver.Server
	copies *execserver.Server // of copies of logs of other nodes
	local  *execserver.Server // of the user of this machine
	server *http.Server
	ended  chan struct{}
	near   io.Closer // the socket for other nodes of this machine; nil without one
}

// joinCluster makes the server a node, or returns nil without --cluster.
func (a *app) joinCluster(so *serveOptions, backend local.Backend, archive cluster.Archive, ship *shipping, log *slog.Logger) (_ *clusterNode, err error) {
	o := &so.cluster
	if !o.on {
		return nil, nil
	}
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	m, err := cluster.LoadMembership(dir)
	if errors.Is(err, cluster.ErrNoMembership) {
		return nil, &hintedError{err, `"spool cluster init" makes a cluster, and "spool cluster join" makes this machine one of it`}
	}
	if err != nil {
		return nil, err
	}
	runs, ok := backend.(cluster.Backend)
	if !ok {
		return nil, fmt.Errorf("the runs of this machine cannot be those of a node: %T", backend)
	}
	config, err := m.Key.TLS(o.node)
	if err != nil {
		return nil, err
	}
	n := &clusterNode{key: m.Key, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	l, addr, err := o.listener(&m)
	if err != nil {
		return nil, err
	}
	isControl := o.nats == "" && (len(m.Control) == 0 || slices.Contains(m.Control, addr))
	if err := n.connect(o, &m, addr, dir, config, isControl, log); err != nil {
		return nil, errors.Join(err, closeListener(l))
	}
	near, socket := listenNear(dir, l != nil, log)
	defer func() {
		if err != nil && near != nil {
			err = errors.Join(err, near.Close())
		}
	}()
	labels := make(map[string]string)
	for _, text := range o.labels {
		k, v, _ := strings.Cut(text, "=")
		labels[k] = v
	}
	n.Node, err = cluster.Join(cluster.Options{
		State: dir, Name: o.node, Addr: addr, Socket: socket, Backend: runs, Facts: n.facts, Key: m.Key, TLS: config, Timing: cluster.NewTiming(o.lease),
		Judge: isControl || o.nats != "", Control: isControl, Build: version().Version, Labels: labels, Engines: local.Engines, Slots: o.slots, Keep: o.keep, Queue: o.queue, Log: log,
		Archive: archive, Archived: ship.has(), Tunnels: cmp.Or(o.tunnels, -1), Parked: o.parked,
		Mirrors: o.mirrors, MirrorBytes: int64(o.mirrorBytes), MirrorFree: cmp.Or(int64(o.mirrorFree), -1), MirrorAge: so.server.store.age,
	})
	if err != nil {
		return nil, errors.Join(err, closeListener(l))
	}
	// What other nodes ask for is answered by this node alone, so that a request is
	// passed on once.
	n.rpc = execserver.New(execserver.Options{Backend: n.Local(), Version: version().Version, Keep: true, RunsOnly: true, Trusted: true, Logger: log})
	n.copies = execserver.New(execserver.Options{Backend: n.Copies(), Version: version().Version, Keep: true, RunsOnly: true, Trusted: true, Logger: log})
	n.local = execserver.New(execserver.Options{Backend: n.Backend(), Version: version().Version, Keep: true, Logger: log})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/rpc", func(w http.ResponseWriter, r *http.Request) { n.rpc.ServeRuns(w, r, access.Owner(), nil) })
	if l == nil {
		l = n.Listener()
	} else {
		mux.Handle("POST /", n.Relay())
	}
	mux.HandleFunc("GET "+cluster.CopiesPath+"/v1/rpc", func(w http.ResponseWriter, r *http.Request) { n.copies.ServeRuns(w, r, access.Owner(), nil) })
	if near != nil {
		n.near = serveNear(near, n.Near(), mux, log)
	}
	n.server = newHTTPServer(mux, log)
	go func() {
		defer close(n.ended)
		_ = n.server.Serve(tls.NewListener(bulkconn.Listen(l), config)) // ends with Close
	}()
	return n, nil
}

// advertiseNone is the address of a node that others cannot connect to.
const advertiseNone = "none"

// listener listens for other nodes, and returns the address that they are told. Both are
// missing if they cannot connect.
func (o *clusterOptions) listener(m *cluster.Membership) (net.Listener, string, error) {
	if o.advertise == advertiseNone {
		if o.nats == "" && len(m.Control) == 0 {
			return nil, "", usageErrorf("--cluster-advertise none: this node is the whole cluster, and others must reach it")
		}
		return nil, "", nil
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, "", &hintedError{err, "name another address with --cluster-listen"}
	}
	return l, cmp.Or(o.advertise, l.Addr().String()), nil
}

// closeListener closes a listener, if there is one.
func closeListener(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// connect connects to the store, which it starts on a control node.
func (n *clusterNode) connect(o *clusterOptions, m *cluster.Membership, addr, dir string, config *tls.Config, isControl bool, log *slog.Logger) (err error) {
	opts := natsd.Options{Name: o.node, URL: o.nats, Creds: o.creds, Replicas: min(replicas, max(len(m.Control), 1)), Log: log}
	switch {
	case o.nats != "":
		opts.Replicas = replicas // or one, if there is one server
	case isControl:
		so := natsd.ServerOptions{Name: o.node, Dir: cluster.StoreDir(dir), TLS: config, Log: log}
		if err := storeAddresses(&so, o.listen, addr, m.Control); err != nil {
			return err
		}
		if n.nats, err = natsd.Start(so); err != nil {
			return err
		}
		opts.Server = n.nats
	default:
		if opts.URL, err = storeURLs(m.Control); err != nil {
			return err
		}
		opts.TLS = config
	}
	n.facts, err = natsd.Connect(opts)
	return err
}

// storeURLs returns where the stores of control nodes are, separated by commas.
func storeURLs(control []string) (string, error) {
	var urls []string
	for _, c := range control {
		at, err := cluster.ClientAddress(c)
		if err != nil {
			return "", err
		}
		urls = append(urls, "tls://"+at)
	}
	return strings.Join(urls, ","), nil
}

// storeAddresses fills in where the store of a control node listens, and where those
// of the others do.
func storeAddresses(so *natsd.ServerOptions, listen, self string, control []string) error {
	if len(control) == 0 {
		so.Client = "127.0.0.1:0" // nobody else connects
		return nil
	}
	var err error
	if so.Client, err = cluster.ClientAddress(listen); err != nil {
		return usageErrorf("--cluster-listen: %s", err)
	}
	if len(control) == 1 {
		return nil
	}
	if so.Route, err = cluster.RouteAddress(listen); err != nil {
		return err
	}
	for _, c := range control {
		if c == self {
			continue
		}
		route, err := cluster.RouteAddress(c)
		if err != nil {
			return err
		}
		so.Routes = append(so.Routes, route)
	}
	return nil
}

// Close ends the node. Runs go on.
func (n *clusterNode) Close() error {
	var errs []error
	if n.server != nil {
		errs = append(errs, n.server.Close())
		if n.near != nil {
			errs = append(errs, n.near.Close())
		}
		n.rpc.Close()
		n.copies.Close()
		n.local.Close()
		<-n.ended
	}
	if n.Node != nil {
		errs = append(errs, n.Node.Close())
	}
	if n.facts != nil {
		n.facts.Close()
	}
	if n.nats != nil {
		n.nats.Close()
	}
	return errors.Join(errs...)
}

// status describes the cluster.
func (n *clusterNode) status() cluster.Status {
	s := n.Status()
	s.Cluster, s.Store = n.key.ID(), n.facts.Status()
	return s
}

// nodes returns the function that lists nodes, nil without a cluster.
func (n *clusterNode) nodes() func() []spool.Node {
	if n == nil {
		return nil
	}
	return n.Nodes
}

// gauges tells how the cluster is, for /metrics.
func (n *clusterNode) gauges(gauge func(name, help string, value float64)) {
	if n == nil {
		return
	}
	s := n.Status()
	is := map[bool]float64{true: 1}
	states, slots, live := make(map[string]float64), 0.0, 0.0
	for i := range s.Nodes {
		is := &s.Nodes[i]
		states[is.State]++
		if is.State == "up" || is.State == "draining" {
			slots, live = slots+float64(is.Slots), live+float64(is.Live)
		}
		if is.Self {
			gauge("spool_node_memory_bytes", "Memory of this node.", float64(is.MemoryBytes))
			gauge("spool_node_memory_free_bytes", "Memory of this node that is free.", float64(is.MemoryFreeBytes))
			gauge("spool_node_runs_live", "Runs of this node that are not closed.", float64(is.Live))
			gauge("spool_node_slots", "Live runs that this node takes.", float64(is.Slots))
		}
	}
	gauge("spool_node_lease", "Whether this node holds its lease.", is[s.Lease])
	gauge("spool_node_epoch", "Epoch of this node: how often it joined the cluster.", float64(s.Epoch))
	connected, outages := n.facts.Connected()
	gauge("spool_cluster_store_connected", "Whether this node reaches the store of the cluster.", is[connected])
	gauge("spool_cluster_store_outages", "How often this node lost the store of the cluster.", float64(outages))
	gauge("spool_cluster_generation", "How often the store of the cluster began anew, from 1 on.", float64(s.Generation))
	gauge("spool_cluster_rebuilding", "Whether the store of the cluster went back in time and nothing is started.", is[s.Rebuild != nil])
	for _, state := range []string{"up", "draining", "lost", "gone"} {
		gauge("spool_cluster_nodes_"+state, "Nodes of the cluster that are "+state+".", states[state])
	}
	relayed := 0.0
	for i := range s.Nodes {
		relayed += is[len(s.Nodes[i].Via) > 0]
	}
	gauge("spool_cluster_nodes_relayed", "Nodes of the cluster that this one reaches through another.", relayed)
	gauge("spool_cluster_relay_tunnels", "Connections between other nodes that this one relays.", float64(s.Relay.Tunnels))
	gauge("spool_cluster_relay_parked", "Connections that nodes without an address keep at this one.", float64(s.Relay.Parked))
	gauge("spool_cluster_relay_bytes", "Bytes between other nodes that this one has relayed.", float64(s.Relay.Bytes))
	if m := s.Mirror; m != nil {
		gauge("spool_cluster_mirror_lag_seconds", "Greatest time for which another node is not known to have all of a run of this one that it copies.", float64(m.LagMs)/1000)
		gauge("spool_cluster_mirror_lag_events", "Greatest number of events of a run of this node that its copy is not known to have.", float64(m.LagEvents))
		gauge("spool_cluster_mirror_runs", "Live runs of this node that another one copies.", float64(m.Runs))
		gauge("spool_cluster_mirror_alone_runs", "Live runs of this node that none copies.", float64(m.Alone))
		gauge("spool_cluster_mirror_stopped_runs", "Runs of this node for whose copies there is no room.", float64(m.Stopped))
		gauge("spool_cluster_mirror_copies", "Copies that this node has of runs of others.", float64(m.Copies))
		gauge("spool_cluster_mirror_copy_bytes", "Bytes of the disk that these copies take.", float64(m.CopyBytes))
	}
	gauge("spool_cluster_slots", "Live runs that all nodes take.", slots)
	gauge("spool_cluster_runs_live", "Runs of all nodes that are not closed, as of their last renewals.", live)
}

// control adds what "spool cluster" asks to a control socket.
func (n *clusterNode) control(mux *http.ServeMux) {
	if n == nil {
		return
	}
	answer := func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(n.status()) // the client may have left
	}
	mux.Handle("GET /{$}", n.local) // for "spool submit"
	mux.HandleFunc("GET /cluster", func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	mux.HandleFunc("POST /cluster/{what}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), controlFor)
		defer cancel()
		var err error
		switch what := r.PathValue("what"); what {
		case "drain", "undrain":
			err = n.Drain(ctx, what == "drain")
		case "leave":
			err = n.Leave(ctx)
		case "rebuild":
			err = n.Rebuild(ctx, r.URL.Query()["without"])
		default:
			http.NotFound(w, r)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		answer(w)
	})
}
