package cluster_test

import (
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// storeFaults are what is done to the servers of the store, in this order.
var storeFaults = []string{
	"all killed", "leader killed", "leader stopped", "one killed", "two killed", "one stopped briefly", "leader stopped briefly", "successor killed", "two stopped",
	"leader ended", "two killed in turn",
}

// fault does something bad to the store, undoes it, and does not wait until it has
// recovered.
func (x *contest) fault(i int) {
	kind := storeFaults[(i+int(*seed)-1)%len(storeFaults)]
	leader := x.leader()
	all := x.stores.all()
	x.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	one, two := all[0], all[:2]
	x.t.Logf("%v: %s; the leader is %s, and the others are %s first", time.Since(x.began).Round(time.Millisecond), kind, leader.name, one.name)
	briefly := time.Duration(1 + x.random.Int64N(int64(tortureLease/2)))
	longer := tortureLease + time.Duration(x.random.Int64N(int64(2*tortureLease)))
	switch kind {
	case "leader stopped":
		x.stop(longer, leader)
	case "leader stopped briefly":
		x.stop(briefly, leader)
	case "one stopped briefly":
		x.stop(briefly, one)
	case "two stopped":
		x.stop(longer, two...)
	case "successor killed": // then nobody tells the leader that it leads no more
		x.signal(syscall.SIGSTOP, leader)
		next := leader
		polltest.Until(x.t, "another leader", func() bool {
			next = x.leader()
			return next != leader
		})
		x.signal(syscall.SIGCONT, leader)
		x.kill(next)
	case "one killed":
		x.kill(one)
	case "leader killed":
		x.kill(leader)
	case "two killed":
		x.kill(two...)
	case "two killed in turn": // the first has not caught up
		x.kill(one)
		x.kill(two[1])
	case "all killed":
		x.kill(all...)
	case "leader ended":
		_ = leader.server.Stop() // it may say that it was ended
		x.kill(leader)
	}
}

// leader returns the server that leads the facts about runs.
func (x *contest) leader() (leader *machine) {
	polltest.Until(x.t, "a leader of the store", func() bool {
		for _, s := range x.nodes[0].facts.Status().Streams {
			for _, m := range x.stores.all() {
				if s.Name == "SPOOL_RUNS" && s.Leader == m.name {
					leader = m
				}
			}
		}
		return leader != nil
	})
	return leader
}

// kill kills servers and starts them again.
func (x *contest) kill(which ...*machine) {
	for _, m := range which {
		m.server.Kill()
	}
	for _, m := range which {
		polltest.Until(x.t, "server "+m.name+" back", func() bool { return m.start(servertest.Binary(x.t)) == nil })
	}
}

// stop stops servers for some time.
func (x *contest) stop(d time.Duration, which ...*machine) {
	x.signal(syscall.SIGSTOP, which...)
	_ = pause.For(x.t.Context(), d) // the test is over otherwise
	x.signal(syscall.SIGCONT, which...)
}

// signal sends a signal to servers.
func (x *contest) signal(s syscall.Signal, which ...*machine) {
	for _, m := range which {
		if err := syscall.Kill(m.server.Pid, s); err != nil {
			x.t.Fatal(err)
		}
	}
}
