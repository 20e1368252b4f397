package main_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/modeltest"
)

// TestAgentUnauthorized checks that a refused key is said to be that.
func TestAgentUnauthorized(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.Unauthorized))
		run := r.start(nil)
		s := r.say(run, "Hello?")
		r.wantDone(s, spool.TurnError)
		if s.done.ErrorClass != agent.ClassAuth || s.done.Error == "" {
			t.Errorf("error %q of class %q\n%s", s.done.Error, s.done.ErrorClass, s)
		}
		r.end(run)
	})
}

// TestAgentUnknownModel checks that a model which does not exist is said to be
// the reason.
func TestAgentUnknownModel(t *testing.T) {
	eachOf(t, quickWays, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.UnknownModel))
		run := r.start(nil)
		s := r.say(run, "Hello?")
		r.wantDone(s, spool.TurnError)
		if s.done.Error == "" || s.done.ErrorClass != agent.ClassModel {
			t.Errorf("error %q of class %q\n%s", s.done.Error, s.done.ErrorClass, s)
		}
		r.end(run)
	})
}

// TestAgentTriesAgain checks that a limit and a broken connection are retries
// on the way to success.
func TestAgentTriesAgain(t *testing.T) {
	eachOf(t, quickWays, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.RateLimited.Then(1, modeltest.Cut("I beg").Then(1, modeltest.Say("At last."))),
		))
		run := r.start(nil)
		s := r.say(run, "Try.")
		r.wantDone(s, spool.TurnOK)
		if s.done.Answer != "At last." {
			t.Errorf("answer %q\n%s", s.done.Answer, s)
		}
		if n := len(r.model.Requests()); n < 3 {
			t.Errorf("the model was asked %d times", n)
		}
		if len(s.retries) == 0 {
			t.Errorf("no retry was told\n%s", s)
		}
		r.end(run)
	})
}

// TestAgentTokenLimit checks that an answer which was cut off is no success
// without a word, where the agent tells.
func TestAgentTokenLimit(t *testing.T) {
	eachOf(t, quickWays, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.TokenLimit("And so it goes on and")))
		run := r.start(nil)
		s := r.say(run, "Tell me everything.")
		if s.done.Outcome == spool.TurnOK || s.done.ErrorClass != agent.ClassContext {
			t.Errorf("outcome %s, error %q of class %q\n%s", s.done.Outcome, s.done.Error, s.done.ErrorClass, s)
		}
		r.end(run)
	})
}
