package kernel

import (
	"testing"

	"go.uber.org/goleak"
)

// AroundTests runs the tests; the tests outside this package put what they
// share around them.
var AroundTests = func(m interface{ Run() int }) int { return m.Run() }

func TestMain(m *testing.M) { goleak.VerifyTestMain(around{m}) }

type around struct{ m *testing.M }

func (a around) Run() int { return AroundTests(a.m) }
