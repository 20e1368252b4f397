//go:build linux

package kernel_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// digest reads what a turn writes without keeping it.
func (s *session) digest(turn *spool.Turn) (sum hash.Hash, size int64, done spool.Done) {
	s.t.Helper()
	sum = sha256.New()
	for e, err := range s.run.Stream(s.ctx, turn.Seq()) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Turn != turn.Seq() {
			continue
		}
		switch e.Kind {
		case spool.KindOutput:
			size += int64(len(e.Bytes))
			sum.Write(e.Bytes)
		case spool.KindDone:
			if err := json.Unmarshal(e.Data, &done); err != nil {
				s.t.Fatal(err)
			}
			return sum, size, done
		}
	}
	s.t.Fatal("the turn has no end")
	return nil, 0, done
}

func TestManyMegabytesArriveComplete(t *testing.T) {
	s := lab{backend: openServer(t)}.start(t) // over everything there is
	const lines, per = 64, 1 << 20            // much more than any buffer on the way
	turn := s.begin(spool.Cell{Code: fmt.Sprintf("for i in range(%d): print(str(i).rjust(%d, '.'))", lines, per-1)})
	sum, size, done := s.digest(turn)
	want := sha256.New()
	for i := range lines {
		n := fmt.Sprint(i)
		fmt.Fprintf(want, "%s%s\n", strings.Repeat(".", per-1-len(n)), n)
	}
	if done.Outcome != spool.TurnOK || size != lines*per || !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Errorf("%+v, %d bytes", done, size)
	}
}

func TestManyMegabytesInOneLine(t *testing.T) {
	s := one(t)
	turn := s.begin(spool.Cell{Code: "print('y' * 20_000_000)"})
	if _, size, done := s.digest(turn); done.Outcome != spool.TurnOK || size != 20_000_001 {
		t.Errorf("%+v, %d bytes", done, size)
	}
	// As a result it is too large for an event, and arrives all the same, or
	// somebody says that it does not.
	c := s.exec("'z' * 20_000_000").want(spool.TurnOK)
	if len(c.shown(python.KindResult)) != 1 {
		t.Errorf("%s", c)
	}
	s.alive("1", "1")
}

func TestOddTextArrives(t *testing.T) {
	s := one(t)
	s.ok(`print("a\0b")`).wantOutput("a\x00b\n")
	s.ok(`"a\0b"`).wantResult(`'a\x00b'`)
	s.ok(`print("\ud83d\ude00 \udc80")`).wantOutput("\\ud83d\\ude00 \\udc80\n")
	c := s.ok(`display("\ud800", "\0", "\u2028", "\x1b[31m")`)
	if len(c.displays()) != 4 {
		t.Errorf("%s", c)
	}
	s.exec(`raise ValueError("\0\ud800")`).want(spool.TurnError).wantException("ValueError", "")
	s.ok("import sys; n = sys.stdout.buffer.write(bytes(range(256)))")
	s.ok("# \U0001F600 ä\nx = 'ä😀'; x").wantResult("'ä😀'")
}

func TestTenThousandDisplayUpdates(t *testing.T) {
	s := one(t)
	c := s.ok("h = display(0, display_id='n')\nfor i in range(1, 10_001): h.update(i)")
	all := c.displays()
	if len(all) != 10_001 || plainText(t, all[10_000]) != "10000" || !all[10_000].Update {
		t.Errorf("%d displays", len(all))
	}
}
