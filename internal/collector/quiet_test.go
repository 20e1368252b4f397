package collector

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuietAfterWork(t *testing.T) {
	var q quiet
	var used time.Duration
	const ms, mib = time.Millisecond, 1 << 20
	for i, look := range []struct {
		lately  time.Duration
		program int64
		own     int64
		want    amount
	}{
		{50 * ms, 8 * mib, 20 * mib, nothing}, // it starts
		{10 * ms, 9 * mib, 20 * mib, nothing}, // and works
		{1 * ms, 9 * mib, 20 * mib, all},
		{1 * ms, 4 * mib, 20 * mib, program}, // ending the work took some of the program
		{1 * ms, 3 * mib, 20 * mib, nothing}, // which it needs all the time
		{3 * ms, 5 * mib, 20 * mib, nothing}, // too little work at a time
		{3 * ms, 6 * mib, 20 * mib, program}, // but it needed much of the program
		{1 * ms, 1 * mib, 20 * mib, nothing},
		{5 * ms, 3 * mib, 27 * mib, nothing}, // it worked, but little
		{5 * ms, 3 * mib, 28 * mib, all},     // and took memory for that
		{1, 2 * mib, 20 * mib, nothing},
		{8 * time.Second, 8 * mib, 40 * mib, nothing},
		{700 * ms, 8 * mib, 40 * mib, nothing}, // it is not quiet yet
		{140 * ms, 8 * mib, 40 * mib, all},
		{100 * ms, 3 * mib, 40 * mib, all}, // it finishes
		{100 * ms, 3 * mib, 40 * mib, all},
		{100 * ms, 3 * mib, 40 * mib, all},
		{100 * ms, 3 * mib, 40 * mib, all},
		{100 * ms, 3 * mib, 40 * mib, all},
		{100 * ms, 8 * mib, 40 * mib, program}, // it does little, all the time
		{100 * ms, 8 * mib, 50 * mib, nothing},
		{100 * ms, 8 * mib, 50 * mib, nothing},
		{100 * ms, 8 * mib, 50 * mib, all},
		{100 * ms, 1 * mib, 50 * mib, nothing}, // and no more memory than before
		{100 * ms, 1 * mib, 50 * mib, nothing},
		{100 * ms, 1 * mib, 50 * mib, nothing},
		{100 * ms, 1 * mib, 50 * mib, nothing},
		{100 * ms, 1 * mib, 50 * mib, nothing},
	} {
		used += look.lately
		m := memory{look.own + look.program, look.program}
		got := q.look(lookEvery, used, m)
		if got != look.want {
			t.Errorf("look %d: %v", i, got)
		}
		if got == all {
			q.returned(used, used, m)
		}
	}
}

// A process that has worked much is looked at more often for some time, by the same
// measure.
func TestQuietSoonAfterWork(t *testing.T) {
	const ms = time.Millisecond
	q, used := quiet{last: time.Second, done: time.Second}, time.Second
	for i, look := range []struct {
		passed, lately time.Duration
		want           amount
		next           time.Duration
	}{
		{lookEvery, 149 * ms, nothing, lookEvery}, // it does little
		{lookEvery, 3 * time.Second, nothing, soon},
		{soon, 200 * ms, nothing, soon},
		{soon, 13 * ms, nothing, soon}, // 1/20 of a processor
		{soon, 12 * ms, all, soon},
		{soon, 1 * ms, nothing, soon},
		{soon, 12 * ms, all, soon}, // a part of it came later
		{soon, 12 * ms, all, soon},
		{soon, 12 * ms, all, soon},
		{soon, 12 * ms, all, soon},
		{soon, 12 * ms, all, lookEvery},
		{lookEvery, 12 * ms, nothing, lookEvery},
	} {
		used += look.lately
		got := q.look(look.passed, used, memory{})
		if got == all {
			q.returned(used, used, memory{})
		}
		if next := q.next(lookEvery); got != look.want || next != look.next {
			t.Errorf("look %d: %v, and the next after %v", i, got, next)
		}
	}
	q = quiet{finish: 1, since: soonFor}
	if next := q.next(soon); next != 2*soon {
		t.Errorf("a while after work the next look is after %v", next)
	}
}

// Memory that comes back at little work is returned less and less often, and again as soon
// as before after much work.
func TestMemoryThatComesBack(t *testing.T) {
	const ms, mib = time.Millisecond, 1 << 20
	q, used := quiet{}, time.Second
	q.returned(used, used, memory{all: 20 * mib})
	count := func(looks int) map[amount]int {
		times := make(map[amount]int)
		for range looks {
			used += 20 * ms
			got := q.look(lookEvery, used, memory{all: 42 * mib, program: 12 * mib})
			times[got]++
			switch got {
			case all:
				q.returned(used, used, memory{all: 20 * mib})
			case program:
				q.look(lookEvery, used, memory{all: 24 * mib, program: 4 * mib})
			}
		}
		return times
	}
	first := count(20)
	if first[all] < 2 || first[program] < 2 {
		t.Errorf("in the first minute: %v", first)
	}
	count(200)
	later := count(2 * int(longTime/lookEvery))
	if later[all] > 2 || later[program] > 2 {
		t.Errorf("in %v, later: %v", 2*longTime, later)
	}
	used += 2 * time.Second
	q.look(lookEvery, used, memory{all: 42 * mib, program: 12 * mib}) // much work
	q.finish = 0
	if again := count(20); again[all] < 2 || again[program] < 2 {
		t.Errorf("in a minute after work: %v", again)
	}
}

// A process with a large heap that does little returns memory seldom, and after much work
// at once.
func TestReturningIsWorthIt(t *testing.T) {
	q := quiet{}
	q.returned(0, time.Second, memory{})
	used, looks := time.Second, 0
	for got := nothing; got != all; looks++ {
		used += 50 * time.Millisecond
		got = q.look(lookEvery, used, memory{all: 64 << 20})
	}
	if want := int((worthTime*time.Second + lookEvery - 1) / lookEvery); looks != want {
		t.Errorf("after %d looks, want %d", looks, want)
	}
	q.returned(used, used+time.Second, memory{})
	used += 12 * time.Second
	if got := q.look(lookEvery, used, memory{}); got != nothing {
		t.Errorf("at work: %v", got)
	}
	used += time.Millisecond
	if got := q.look(lookEvery, used, memory{}); got != all {
		t.Errorf("after work: %v", got)
	}
}

// ReturnWhenQuiet ends with its context.
func TestReturnWhenQuietEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*lookEvery)
		defer cancel()
		ReturnWhenQuiet(ctx)
	})
}
