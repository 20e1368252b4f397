package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/client"
)

// endConnection is a connection that counts how often it was closed.
type endConnection struct {
	Backend
	closed atomic.Int32
}

func (c *endConnection) Close() error {
	c.closed.Add(1)
	return nil
}

// TestWaysToANode connects to a node whose address is silent, slow, refuses or answers, with
// relays that do the same, and checks which connection is used, when, and that all others
// are closed.
func TestWaysToANode(t *testing.T) {
	const never = time.Hour
	type answer struct {
		after time.Duration
		err   error
	}
	refused := errors.New("refused")
	for _, tt := range []struct {
		name   string
		direct answer
		relays []answer
		via    string // of the relay; "none" if it is not reached
		after  time.Duration
	}{
		{"it answers", answer{0, nil}, []answer{{0, nil}}, "", 0},
		{"it is slow", answer{directFor - 1, nil}, []answer{{0, nil}}, "", directFor - 1},
		{"it is silent", answer{never, nil}, []answer{{0, nil}}, "c", directFor},
		{"it answers while a relay is asked", answer{directFor + 1, nil}, []answer{{2, nil}}, "", directFor + 1},
		{"it refuses", answer{0, refused}, []answer{{1, nil}}, "c", 1},
		{"the first relay refuses", answer{0, refused}, []answer{{0, refused}, {1, nil}}, "d", 1},
		{"the first relay is silent", answer{0, refused}, []answer{{never, nil}, {1, nil}}, "d", relayFor + 1},
		{"all refuse", answer{0, refused}, []answer{{0, refused}, {0, refused}}, "none", 0},
		{"all are silent", answer{never, nil}, []answer{{never, nil}, {never, nil}}, "none", dialTimeout},
		{"there is no relay", answer{1, refused}, nil, "none", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(nil)
				all.saw(nodeRecord{Name: "b", State: nodeUp, Addr: "b"}, 1)
				answers := map[string]answer{"b": tt.direct}
				for i, a := range tt.relays {
					name := string(rune('c' + i))
					all.saw(nodeRecord{Name: name, State: nodeUp, Addr: name, Control: i == 0}, uint64(i+2))
					answers[name] = a
				}
				var made []*endConnection
				dial := func(ctx context.Context, name string) (connection, error) {
					a := answers[name]
					pause(ctx, a.after, nil)
					if err := errors.Join(ctx.Err(), a.err); err != nil {
						return (*client.Client)(nil), err // as a function that returns a client does
					}
					c := new(endConnection)
					made = append(made, c)
					return c, nil
				}
				p := newPeers(&Options{Name: "a", connect: dial}, all, nil, "")
				p.through = func(ctx context.Context, by member, _ string) (connection, error) { return dial(ctx, by.Name) }
				began := time.Now()
				c, err := p.get(t.Context(), "b")
				if took := time.Since(began); took != tt.after {
					t.Errorf("it took %v, not %v", took, tt.after)
				}
				if reached := tt.via != "none"; (err == nil) != reached || reached && p.via("b") != tt.via {
					t.Errorf("it is reached through %q: %v", p.via("b"), err)
				}
				if err != nil && !isCut(err) {
					t.Errorf("%v is no error of a connection", err)
				}
				synctest.Wait()
				for _, other := range made {
					if used := connection(other) == c; used == (other.closed.Load() > 0) {
						t.Errorf("a connection that is used (%v) was closed %d times", used, other.closed.Load())
					}
				}
				p.close()
				for _, other := range made {
					if other.closed.Load() != 1 {
						t.Errorf("in the end a connection was closed %d times", other.closed.Load())
					}
				}
			})
		})
	}
}

// TestHealedWayIsUsed checks that the address of a node that is reached through a relay is
// tried again, and that requests may go on over the relay for some time.
func TestHealedWayIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(nil)
		all.saw(nodeRecord{Name: "b", State: nodeUp, Addr: "b"}, 1)
		all.saw(nodeRecord{Name: "c", State: nodeUp, Addr: "c"}, 2)
		var healed atomic.Bool
		relayed, direct := new(endConnection), new(endConnection)
		p := newPeers(&Options{Name: "a", connect: func(context.Context, string) (connection, error) {
			if !healed.Load() {
				return nil, errors.New("refused")
			}
			return direct, nil
		}}, all, nil, "")
		p.through = func(context.Context, member, string) (connection, error) { return relayed, nil }
		defer p.close()
		if c, err := p.get(t.Context(), "b"); err != nil || c != connection(relayed) || p.via("b") != "c" {
			t.Fatalf("the first connection is %v through %q, %v", c, p.via("b"), err)
		}
		time.Sleep(10 * time.Minute)
		if p.via("b") != "c" {
			t.Error("it is not reached through the relay any more")
		}
		healed.Store(true)
		time.Sleep(directAgain + time.Second)
		if c, err := p.get(t.Context(), "b"); err != nil || c != connection(direct) || p.via("b") != "" {
			t.Errorf("after %v the connection is %v through %q, %v", directAgain, c, p.via("b"), err)
		}
		if relayed.closed.Load() > 0 {
			t.Error("requests over the relay were cut off")
		}
		time.Sleep(retireAfter)
		if relayed.closed.Load() != 1 || direct.closed.Load() != 0 {
			t.Error("the relay is still used")
		}
	})
}
