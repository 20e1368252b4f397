package cluster

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// faulty does something bad now and then, until the context ends, and undoes it.
func (w *simWorld) faulty(ctx context.Context) {
	var undo sync.WaitGroup
	defer undo.Wait()
	random := rand.New(rand.NewPCG(*simSeed, 5))
	kinds := []string{"machine killed", "clock jumped", "server killed", "stopped", "cut off", "cut off for a moment", "leader of the store killed", "clock jumped and server killed", "machine killed", "store away", "rack killed"}
	for i := 0; ; i++ {
		pause(ctx, time.Duration(random.Float64()*2*float64(*simFault)), nil)
		if ctx.Err() != nil {
			return
		}
		kind := kinds[i%len(kinds)]
		victims, long := 1, time.Duration(20+random.IntN(40))*time.Second
		if kind == "rack killed" {
			victims = max(2, len(w.nodes)/25)
		}
		w.mu.Lock()
		w.faults[kind]++
		w.mu.Unlock()
		switch kind {
		case "leader of the store killed": // how long the election takes
			undo.Go(func() { w.away(4*time.Second+long/8, false) })
			continue
		case "store away":
			undo.Go(func() { w.away(long/2, true) })
			continue
		}
		at := random.IntN(len(w.nodes))
		for range victims {
			n := w.nodes[at%len(w.nodes)]
			if at++; n.reserve() {
				n.off.Store(0)
				if strings.HasPrefix(kind, "clock jumped") {
					n.off.Store(int64(random.IntN(2000)-1000) * int64(time.Hour) / 10)
				}
				undo.Go(func() { w.fault(n, kind, long) })
			}
		}
	}
}

// away has the store not answer for some time.
func (w *simWorld) away(d time.Duration, cut bool) {
	if w.store.away() != nil {
		return
	}
	w.mu.Lock()
	w.awayAt = time.Now()
	w.mu.Unlock()
	w.store.outage(w.ctx, d, cut)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holes += time.Since(w.awayAt)
	w.awayAt, w.lastAway = time.Time{}, time.Now()
}

// fault does something to a node and undoes it.
func (w *simWorld) fault(n *simNode, kind string, long time.Duration) {
	defer n.release()
	restart := func() {
		if err := n.start("v2"); err != nil {
			w.fail("node %s does not start: %v", n.name, err)
		}
		n.unreachable(false)
	}
	if kind == "clock jumped" { // nothing else is wrong with the node
		pause(w.ctx, long, nil)
		n.off.Store(-n.off.Load()) // it is set wrong the other way, and then right
		pause(w.ctx, long, nil)
		n.off.Store(0)
		return
	}
	n.unreachable(true)
	if n.control { // its detector begins anew
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lastAway = time.Now()
		}()
	}
	switch kind {
	case "machine killed", "rack killed":
		if err := n.stop(); err != nil {
			w.fail("node %s: %v", n.name, err)
		}
		n.machine.die()
		pause(w.ctx, long, nil)
		restart()
	case "server killed", "clock jumped and server killed":
		if err := n.stop(); err != nil {
			w.fail("node %s: %v", n.name, err)
		}
		pause(w.ctx, 2*time.Second, nil)
		restart()
	case "stopped":
		n.net.setStopped(true)
		pause(w.ctx, long, nil)
		n.net.setStopped(false)
		n.unreachable(false)
	case "cut off", "cut off for a moment":
		if kind != "cut off" {
			long /= 10
		}
		n.net.setCut(true)
		pause(w.ctx, long, nil)
		n.net.setCut(false)
		n.unreachable(false)
	}
}

// upgrade restarts the server of every node, the control nodes one after another and
// then others a few at a time.
func (w *simWorld) upgrade(ctx context.Context) {
	pause(ctx, *simLength/3, nil)
	atOnce := make(chan struct{}, max(2, len(w.nodes)/50))
	var all sync.WaitGroup
	defer all.Wait()
	for _, n := range w.nodes {
		for !n.reserve() {
			pause(ctx, time.Second, nil)
			if ctx.Err() != nil {
				return
			}
		}
		atOnce <- struct{}{}
		one := func() {
			w.fault(n, "server killed", 0)
			w.mu.Lock()
			w.upgraded++
			w.mu.Unlock()
			<-atOnce
		}
		if n.control {
			one()
			pause(ctx, w.timing.Renew, nil)
		} else {
			all.Go(one)
		}
	}
}
