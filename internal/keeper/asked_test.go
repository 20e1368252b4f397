package keeper

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// hears is a [newsReceiver].
type hears struct {
	news []string
	errs []error
}

func (h *hears) receiveNews(b []byte, err error) {
	if err != nil {
		h.errs = append(h.errs, err)
		return
	}
	h.news = append(h.news, string(b))
}

// Each request gets its own answer, once: an update, an error, or the end of the
// connection.
func TestAskedIsAnsweredOnce(t *testing.T) {
	var a asked
	var updated, refused, cut hears
	ids := make(map[*hears]uint64)
	for _, h := range []*hears{&updated, &refused, &cut} {
		id, err := a.add(h)
		if err != nil {
			t.Fatal(err)
		}
		ids[h] = id
	}
	news := append(appendHeader(nil, messageNews, ids[&updated])[1:], "news"...)
	if err := a.answer(messageNews, news); err != nil {
		t.Error(err)
	}
	if err := a.answer(messageNews, news); err == nil {
		t.Error("a second answer was accepted")
	}
	if err := a.answer(messageNoNews, append(appendHeader(nil, messageNoNews, ids[&refused])[1:], `{"code":7,"message":"no"}`...)); err != nil {
		t.Error(err)
	}
	ended := errors.New("ended")
	a.close(ended)
	if _, err := a.add(&cut); !errors.Is(err, ended) {
		t.Errorf("after the end: %v", err)
	}
	var e *rpc.Error
	if fmt.Sprint(updated.news) != "[news]" || len(refused.errs) != 1 || !errors.As(refused.errs[0], &e) || e.Code != 7 ||
		len(cut.errs) != 1 || !errors.Is(cut.errs[0], ended) || len(updated.errs)+len(refused.news)+len(cut.news) != 0 {
		t.Errorf("updated %+v, refused %+v, cut %+v", updated, refused, cut)
	}
}

// An answer that is no answer ends the connection, and a request that it names is told.
func TestAskedRefusesBrokenAnswers(t *testing.T) {
	for _, kind := range []byte{messageNews, messageNoNews} {
		for _, b := range [][]byte{{}, {0x80}, {7}} {
			if new(asked).answer(kind, b) == nil {
				t.Errorf("answer %x of kind %d was accepted", b, kind)
			}
		}
	}
	var a asked
	var h hears
	if _, err := a.add(&h); err != nil {
		t.Fatal(err)
	}
	if a.answer(messageNoNews, []byte{1, '{'}) == nil || len(h.errs) != 1 {
		t.Errorf("an error that is none: %+v", h)
	}
}

// A request that was not sent is not answered, unless the connection has ended meanwhile.
func TestTryAskOfAPeerThatTakesNothing(t *testing.T) {
	a, _ := unixPair(t)
	k := &keeperConn{transport: newTransport(newFrames(a, "peer"))}
	var h hears
	sent := 0
	for k.tryAsk(&h, "r", 1) {
		sent++
	}
	if len(k.asked.waiting) != sent || sent == 0 {
		t.Errorf("%d requests were sent, and %d wait", sent, len(k.asked.waiting))
	}
	_ = k.transport.close()
	k.transport.frames.end()
	k.asked.close(rpc.ErrConnClosed)
	if len(h.errs) != sent {
		t.Errorf("%d of %d requests heard of the end", len(h.errs), sent)
	}
	if k.tryAsk(&h, "r", 1) {
		t.Error("a request was sent after the end")
	}
}

// What the mirror does not decode again is what it was told before.
func TestDecodeNewsKeepsFacts(t *testing.T) {
	m := &mirror{id: "r"}
	u := record.Update{Last: 1}
	u.Info.ID, u.Info.Name, u.Info.Last, u.Info.Pid = "r", "first", 1, 7
	take := func() record.Update {
		t.Helper()
		b, err := record.AppendWhole(nil, &u)
		if err != nil {
			t.Fatal(err)
		}
		var got record.Update
		facts, err := m.decodeNews(b, &got)
		if err != nil {
			t.Fatal(err)
		}
		m.info, m.facts = got.Info, facts
		return got
	}
	for i, name := range []string{"first", "first", "second", "second"} {
		u.Info.Name, u.Info.Last = name, u.Info.Last+1
		got := take()
		if got.Info.Name != name || got.Info.Pid != 7 || got.Info.Last != u.Info.Last {
			t.Errorf("update %d: %+v, want %+v", i, got.Info, u.Info)
		}
	}
	m.info.Name = "not of an update" // and the sum says that it is
	if got := take(); got.Info.Name != "not of an update" {
		t.Errorf("known facts were decoded again: %+v", got.Info)
	}
}
