package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// FuzzProblem builds errors from others, wrapped, joined and with any text: each becomes a
// problem of the table, whose JSON can be read again.
func FuzzProblem(f *testing.F) {
	leaves := []error{
		spool.ErrNotFound, spool.ErrAmbiguous, spool.ErrExists, spool.ErrInputClosed, spool.ErrEnded, spool.ErrBusy, spool.ErrDenied, spool.ErrUnsupported,
		spool.ErrInvalid, spool.ErrClosed, spool.ErrNotAsked, spool.ErrNotRetyped, spool.ErrLost, syscall.ENOSPC, syscall.ENOENT, io.ErrUnexpectedEOF,
		&http.MaxBytesError{Limit: 7}, &access.Refusal{Status: 401}, &Problem{Code: "trimmed", First: 3}, &Problem{Code: "of tomorrow"}, errors.New("odd"),
	}
	for i := range leaves {
		f.Add([]byte{byte(i)}, "do something")
	}
	f.Add([]byte{0, 100, 1, 200, 2, 255, 3}, "a \xff b\n\x00")
	f.Fuzz(func(t *testing.T, steps []byte, text string) {
		err := errors.New(text)
		for _, step := range steps {
			next := leaves[int(step)%len(leaves)]
			switch step / 64 {
			case 0:
				err = fmt.Errorf("%s: %w", text, next)
			case 1:
				err = errors.Join(err, next)
			case 2:
				err = fmt.Errorf("%w (%w)", next, err)
			case 3:
				err = &spool.StartError{Reason: text, Hint: text, Err: err}
			}
		}
		c := &call{id: "rq-1"}
		p := c.complete(*toProblem(err))
		if kind := problemOf(p.Code); p.Status < 400 || p.Status > 599 || p.Title == "" || kind.code == p.Code && kind.status != p.Status {
			t.Fatalf("%v becomes %+v", err, p)
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Problem
		if err := json.Unmarshal(b, &again); err != nil || again.Code != p.Code || again.Status != p.Status {
			t.Fatalf("%s is read as %+v, %v", b, again, err)
		}
	})
}
