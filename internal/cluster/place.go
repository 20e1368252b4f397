package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool"
)

// Labels of a spec that say where it may run.
const (
	// LabelNode names the node.
	LabelNode = "place.node"
	// LabelNear names a run: the new one starts on the same node.
	LabelNear = "place.near"
	// labelWant begins a label that its node must have: place.want.gpu=a100.
	labelWant = "place.want."
)

// candidates is how many nodes a start is offered to at most.
const candidates = 3

// isRefusal reports whether a node did not start a run and another one may.
func isRefusal(err error) bool {
	var unreachable *unreachableError
	return isUnclaimed(err) || isFull(err) || errors.Is(err, spool.ErrBusy) || errors.As(err, &unreachable) || errors.Is(err, ErrUndecided) && !errors.Is(err, spool.ErrExists)
}

// isFull reports whether a node did not start a run because its disk is full.
func isFull(err error) bool {
	var se *spool.StartError
	return errors.As(err, &se) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// isUnclaimed reports whether a node is lost that had not claimed the run: another one
// may start it, for of two claims one counts.
func isUnclaimed(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) && lost.unclaimed
}

// near returns the node on which a run must start because of another run: kernels fork
// on their own machine.
func (r *Router) near(ctx context.Context, spec *spool.Spec) (string, error) {
	other := spool.RunID(spec.Labels[LabelNear])
	if other == "" && len(spec.Config) > 0 {
		var config struct {
			Fork spool.RunID `json:"fork"`
		}
		if json.Unmarshal(spec.Config, &config) == nil { // the engine says what is wrong with it
			other = config.Fork
		}
	}
	if other == "" {
		return spec.Labels[LabelNode], nil
	}
	node, _, err := r.find(ctx, other)
	if errors.Is(err, spool.ErrNotFound) && spec.Labels[LabelNear] == "" {
		return "", nil // the engine says so, too
	}
	return node, err
}

// choose returns the nodes to offer a start to, the best first. If none takes the run
// now, it waits for one that may come back.
func (r *Router) choose(ctx context.Context, spec *spool.Spec, pinned string) ([]string, error) {
	deadline := time.After(DefaultClaim)
	for {
		nodes, changed := r.members.all()
		names, err := r.offer(nodes, spec, pinned)
		if err == nil || !slices.ContainsFunc(nodes, func(n member) bool {
			back := n
			back.State = nodeUp
			w := wantsOf(spec, nodes)
			return n.State == nodeLost && w.refusal(&back) == ""
		}) {
			return names, err
		}
		select {
		case <-changed:
		case <-deadline:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// offer chooses among nodes.
func (r *Router) offer(nodes []member, spec *spool.Spec, pinned string) ([]string, error) {
	if pinned != "" {
		for _, n := range nodes {
			switch {
			case n.Name != pinned || n.State == nodeGone:
			case n.State == nodeDraining:
				return nil, placeError(fmt.Errorf("%w: node %s takes no new runs", spool.ErrUnsupported, pinned), nodes)
			default:
				return []string{pinned}, nil
			}
		}
		return nil, placeError(fmt.Errorf("%w: there is no node %s", spool.ErrUnsupported, pinned), nodes)
	}
	w := wantsOf(spec, nodes)
	var fit []member
	var refused []string
	for i := range nodes {
		if why := w.refusal(&nodes[i]); why != "" {
			refused = append(refused, nodes[i].Name+" "+why)
		} else {
			fit = append(fit, nodes[i])
		}
	}
	if len(fit) == 0 {
		if len(nodes) == 0 { // the store has not answered yet: the node itself says what it waits for
			return []string{r.self}, nil
		}
		err := fmt.Errorf("%w: no node takes such a run: %s", spool.ErrUnsupported, strings.Join(refused, "; "))
		return nil, &spool.StartError{Reason: "unsupported", Err: err, Hint: `"spool cluster nodes" says what each node has`}
	}
	rand.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
	slices.SortStableFunc(fit, func(a, b member) int {
		return cmp.Or(w.cmpRoom(&a, &b), cmpLoad(&a, &b))
	})
	var names []string
	for _, n := range fit[:min(candidates, len(fit))] {
		names = append(names, n.Name)
	}
	return names, nil
}

// placeError is the error of a start for which there is no node.
func placeError(err error, nodes []member) error {
	var names []string
	for _, n := range nodes {
		names = append(names, fmt.Sprintf("%s (%s)", n.Name, n.State))
	}
	return &spool.StartError{Reason: "unsupported", Err: err, Hint: "nodes: " + strings.Join(names, ", ")}
}

// cmpLoad orders nodes by how full they are.
func cmpLoad(a, b *member) int {
	return (a.Live+a.placed)*b.Slots - (b.Live+b.placed)*a.Slots
}
