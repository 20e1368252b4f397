package wasipy

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// someState is what a script may leave behind: values, an open file in the
// middle, a generator that is half through, a seeded source of numbers.
const someState = `
import random, time
n = %d
l = [str(i) for i in range(n)]
open('/f', 'w').write('first\nsecond %d\n')
f = open('/f')
f.readline()
g = (i * n for i in range(100))
next(g), next(g)
random.seed(n)
began = time.monotonic()
`

const seeSomeState = `
import random, time
r = random.random()
random.seed(n)
print(l[-1], f.readline().strip(), next(g), r == random.random(), time.monotonic() >= began)
`

func TestIdleInterpretersAreStored(t *testing.T) {
	m := testMachine(t)
	ctx := context.Background()
	runners := make([]*localRunner, maxAwake+3)
	for n := range runners {
		r := &localRunner{machine: m, fs: m.files(vfs.NewTree(vfs.NewMemory(nil)))}
		r.config = contextConfig{Boot: guest.BootConfig{Cwd: "/"}, Memory: guest.DefaultMemory, Files: guest.DefaultOpenFiles}
		runners[n] = r
		defer r.close()
		if res, err := r.runOn(ctx, guest.Script{Code: fmt.Sprintf(someState, n+1, n)}, &recorder{out: &bytes.Buffer{}}); err != nil || res.ExitCode != 0 {
			t.Fatalf("%+v %v", res, err)
		}
	}
	m.background.Wait()
	for n, r := range runners {
		if rests := r.kept.resting != nil; rests != (n < len(runners)-maxAwake) || rests == (r.kept.awake != nil) {
			t.Errorf("interpreter %d of %d rests: %v", n, len(runners), rests)
		} else if rests {
			t.Logf("at rest it is %d bytes", len(r.kept.resting.delta))
		}
	}
	// All of them, those that rest first, and those that are put to rest by it.
	for n, r := range runners {
		var out bytes.Buffer
		res, err := r.runOn(ctx, guest.Script{Code: seeSomeState}, &recorder{out: &out})
		if want := fmt.Sprintf("%d second %d %d True True\n", n, n, 2*(n+1)); err != nil || res.ExitCode != 0 || out.String() != want {
			t.Errorf("interpreter %d said %q, not %q: %+v %v", n, out.String(), want, res, err)
		}
	}
	m.background.Wait()
}

func TestStoredInterpreterIsRestoredExactly(t *testing.T) {
	m := testMachine(t)
	ctx := context.Background()
	i, err := m.instantiate(ctx, instanceOptions{memory: spareMemory, files: 16})
	if err != nil {
		t.Fatal(err)
	}
	i.begin(ctx, &recorder{out: &bytes.Buffer{}}, m.files(vfs.NewTree(vfs.NewMemory(nil))))
	if err := i.renew(guest.BootConfig{Cwd: "/"}); err != nil {
		t.Fatal(err)
	}
	if res, err := i.run(guest.Script{Code: fmt.Sprintf(someState, 1000, 1)}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	before := bytes.Clone(i.cow.region[stackSize:i.cow.size])
	k := m.keep(i)
	defer k.close()
	k.rest()
	if k.awake != nil || k.resting == nil {
		t.Fatal("it does not rest")
	}
	got, err := k.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer got.close()
	if !bytes.Equal(got.cow.region[stackSize:got.cow.size], before) {
		t.Error("its memory is not what it was")
	}
	if len(got.files.open) != root+2 {
		t.Errorf("%d descriptors are open", len(got.files.open))
	}
}

func TestLargeInterpretersAreNotStored(t *testing.T) {
	m := testMachine(t)
	ctx := context.Background()
	for _, code := range []string{"b = bytearray(8 << 20)", "l = [bytes(5000) + str(i).encode() for i in range(2000)]"} {
		r := &localRunner{machine: m, fs: m.files(vfs.NewTree(vfs.NewMemory(nil)))}
		r.config = contextConfig{Boot: guest.BootConfig{Cwd: "/"}, Memory: guest.DefaultMemory, Files: guest.DefaultOpenFiles}
		if res, err := r.runOn(ctx, guest.Script{Code: code}, &recorder{out: &bytes.Buffer{}}); err != nil || res.ExitCode != 0 {
			t.Fatalf("%+v %v", res, err)
		}
		if r.kept.rest(); r.kept.awake == nil {
			t.Errorf("%s: it was put to rest", code)
		}
		r.close()
	}
}

func TestDeltas(t *testing.T) {
	was := make([]byte, pageSize)
	for n := range was {
		was[n] = byte(n)
	}
	for name, change := range map[string]func(page []byte){
		"nothing":   func([]byte) {},
		"the first": func(p []byte) { p[0]++ },
		"the last":  func(p []byte) { p[pageSize-1]++ },
		"all":       func(p []byte) { clear(p); p[0] = 1 },
		"some":      func(p []byte) { p[100]++; p[101]++; p[111]++; p[200]++ },
	} {
		page := bytes.Clone(was)
		change(page)
		d := delta(nil).add(2*pageSize, page, was)
		memory := append(make([]byte, 2*pageSize), was...)
		d.apply(memory)
		if !bytes.Equal(memory[2*pageSize:], page) {
			t.Errorf("%s: lost", name)
		}
		if name == "nothing" && len(d) != 0 || len(d) > pageSize+runHeader {
			t.Errorf("%s: %d bytes", name, len(d))
		}
	}
}
