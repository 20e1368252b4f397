package cluster

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
)

// Labels of a run that is started again when its node is lost.
const (
	// LabelRestart says when: "never", or "lost:3" for up to three times.
	LabelRestart = "queue.restart"
	// LabelExclusive is "true" for a run that ends when its node cannot renew its
	// lease: it never overlaps with the one that takes its place.
	LabelExclusive = "queue.exclusive"
	// LabelOf names the run whose place another one takes.
	LabelOf = "queue.of"
	// LabelAttempt is the number of the attempt, from 1 on.
	LabelAttempt = "queue.attempt"
)

// AttemptVariable is the environment variable with the number of the attempt. It only
// grows, so that whatever the run writes to can refuse an earlier attempt.
const AttemptVariable = "SPOOL_ATTEMPT"

// MaxRestarts is how often a run is started again at most.
const MaxRestarts = 100

// maxRestartID bounds the id of a run that may be started again: the next one's is
// longer.
const maxRestartID = 96

// Fractions of the time of a lease. An exclusive run has ended before its node is lost,
// and some time after that the next attempt starts.
const (
	exclusiveNumerator, exclusiveDenominator = 14, 15 // of the lease, after the last renewal
	restartNumerator, restartDenominator     = 2, 3   // of the lease, after the node is lost
)

// ParseRestart returns how often a run is started again when its node is lost, from the
// value of [LabelRestart].
func ParseRestart(text string) (restarts int, err error) {
	if text == "" || text == "never" {
		return 0, nil
	}
	count, ok := strings.CutPrefix(text, "lost:")
	if ok {
		restarts, err = strconv.Atoi(count)
	}
	if !ok || err != nil || restarts < 1 || restarts > MaxRestarts {
		return 0, fmt.Errorf(`%w: the restart policy %.100q: use "never", or "lost:N" with N from 1 to %d`, spool.ErrInvalid, text, MaxRestarts)
	}
	return restarts, nil
}

// restarts returns how often a run is started again, and which attempt it is.
func restarts(labels map[string]string) (most, attempt int) {
	most, _ = ParseRestart(labels[LabelRestart]) // it was checked when it was submitted
	attempt, err := strconv.Atoi(labels[LabelAttempt])
	if err != nil || attempt < 1 {
		attempt = 1
	}
	return most, attempt
}

// mayRestart reports whether another attempt follows when the node of a run is lost.
func mayRestart(labels map[string]string) bool {
	most, attempt := restarts(labels)
	return attempt <= most
}

// isExclusive reports whether a run must end with the lease of its node.
func isExclusive(labels map[string]string) bool { return labels[LabelExclusive] == "true" }

// withAttempt gives a run the number of its attempt.
func withAttempt(spec spool.Spec) spool.Spec {
	most, attempt := restarts(spec.Labels)
	if most > 0 {
		spec.Env = maps.Clone(spec.Env)
		if spec.Env == nil {
			spec.Env = make(map[string]string)
		}
		spec.Env[AttemptVariable] = strconv.Itoa(attempt)
	}
	return spec
}

// checkRestart checks the labels of a run that is submitted.
func checkRestart(spec *spool.Spec) error {
	most, err := ParseRestart(spec.Labels[LabelRestart])
	if err != nil {
		return err
	}
	if text := spec.Labels[LabelExclusive]; text != "" && text != "true" && text != "false" {
		return fmt.Errorf("%w: the label %s is %.100q: use true or false", spool.ErrInvalid, LabelExclusive, text)
	}
	if most > 0 && len(spec.ID) > maxRestartID {
		return fmt.Errorf("%w: the id of a run that may be started again has at most %d characters", spool.ErrInvalid, maxRestartID)
	}
	for _, label := range []string{LabelOf, LabelAttempt} {
		if spec.Labels[label] != "" {
			return fmt.Errorf("%w: the cluster gives the label %s", spool.ErrInvalid, label)
		}
	}
	return nil
}
