package jupyter

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// follow publishes the events after a cursor.
func (k *kernel) follow(ctx context.Context, after spool.Seq) {
	parents := make(map[spool.Seq]json.RawMessage) // of cells that have not ended
	raised := make(map[spool.Seq]*bool)
	var last json.RawMessage // what is written between cells belongs to the last one
	number := k.book.last()
	note := k.Note
	for e, err := range k.Run.Events(ctx, after) {
		if err != nil {
			if ctx.Err() == nil {
				k.Logger.Error("read the log", "error", err)
			}
			return
		}
		switch code, said, ok := cellOf(&e); {
		case e.Kind == spool.KindInput && ok:
			last = k.parent(&e, said.ID)
			parents[e.Seq], raised[e.Seq] = last, new(bool)
			err = k.beginCell(ctx, last, code, number+1, note)
			note = ""
		case e.Kind == spool.KindInput:
		case parents[e.Turn] != nil:
			parent := parents[e.Turn]
			err = k.show(ctx, &e, parent, raised[e.Turn])
			if e.Kind != spool.KindDone || err != nil {
				break
			}
			var d spool.Done
			if json.Unmarshal(e.Data, &d) == nil && d.ExecutionCount > 0 {
				number = d.ExecutionCount
			}
			delete(parents, e.Turn)
			delete(raised, e.Turn)
			k.setBusy(nil)
			err = k.publish(ctx, "status", parent, status("idle"))
		case e.Turn == 0:
			err = k.show(ctx, &e, last, new(bool))
		}
		if err != nil {
			return
		}
		k.setPublished(e.Seq)
	}
}

// beginCell publishes that a cell was accepted.
func (k *kernel) beginCell(ctx context.Context, parent json.RawMessage, code spool.Cell, number int, note string) error {
	k.setBusy(parent)
	if err := k.publish(ctx, "status", parent, status("busy")); err != nil || code.Silent {
		return err
	}
	if err := k.publish(ctx, "execute_input", parent, map[string]any{"code": code.Code, "execution_count": number}); err != nil || note == "" {
		return err
	}
	return k.publish(ctx, "stream", parent, stream("stderr", note))
}

// parent returns the header of the request that began a cell. If it came from elsewhere,
// the id of its input is that of the request.
func (k *kernel) parent(e *spool.Event, id string) json.RawMessage {
	k.mu.Lock()
	raw := k.headers[id]
	delete(k.headers, id)
	k.mu.Unlock()
	if raw != nil {
		return raw
	}
	if id == "" {
		id = fmt.Sprintf("turn-%d", e.Seq)
	}
	b, err := json.Marshal(header{
		ID: id, Session: string(e.Run), Username: "spool", Type: "execute_request", Version: protocolVersion,
		Date: e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"),
	})
	if err != nil {
		return json.RawMessage("{}") // plain strings always encode
	}
	return b
}

func (k *kernel) setBusy(parent json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = parent
}

// remain repeats that a cell runs, after the end of a request that did not wait for it: a
// front end shows the last state that it heard of.
func (k *kernel) remain() {
	k.mu.Lock()
	parent := k.busy
	k.mu.Unlock()
	if parent != nil {
		k.say("status", parent, status("busy"))
	}
}

func (k *kernel) setPublished(seq spool.Seq) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.published = seq
	if k.progress != nil {
		close(k.progress)
		k.progress = nil
	}
}

func stream(name, text string) any { return map[string]string{"name": name, "text": text} }

// show publishes what an event means to a person. raised says whether the cell has raised
// already.
func (k *kernel) show(ctx context.Context, e *spool.Event, parent json.RawMessage, raised *bool) error {
	switch e.Kind {
	case spool.KindOutput:
		name := "stdout"
		if e.Stream == spool.Stderr {
			name = "stderr"
		}
		return k.publish(ctx, "stream", parent, stream(name, string(bytes.ToValidUTF8(e.Bytes, []byte("\ufffd")))))
	case python.KindDisplay, python.KindResult:
		return k.display(ctx, e, parent)
	case python.KindException:
		var x python.Exception
		if json.Unmarshal(e.Data, &x) != nil {
			return nil
		}
		*raised = true
		return k.publish(ctx, "error", parent, map[string]any{"ename": x.Name, "evalue": x.Message, "traceback": lines(x.Traceback)})
	case spool.KindDone:
		var d spool.Done
		if json.Unmarshal(e.Data, &d) != nil || d.Outcome == spool.TurnOK || d.Outcome == "" || *raised {
			return nil
		}
		return k.publish(ctx, "error", parent, ending(d.Outcome, d.Error))
	case spool.KindNotice:
		var n spool.Notice
		if json.Unmarshal(e.Data, &n) != nil || n.Level != "warning" && n.Level != "error" {
			return nil
		}
		return k.publish(ctx, "stream", parent, stream("stderr", "spool: "+n.Text+"\n"))
	case spool.KindTruncated:
		return k.publish(ctx, "stream", parent, stream("stderr", "spool: a part of the output was dropped here\n"))
	}
	return nil
}

// display publishes a display or a result.
func (k *kernel) display(ctx context.Context, e *spool.Event, parent json.RawMessage) error {
	var d python.Display
	if json.Unmarshal(e.Data, &d) != nil {
		return nil
	}
	if d.Clear {
		if err := k.publish(ctx, "clear_output", parent, map[string]bool{"wait": d.Wait}); err != nil {
			return err
		}
	}
	delete(d.Bundle, python.MIMEStatus)
	if len(d.Bundle) == 0 {
		return nil
	}
	data := make(map[string]json.RawMessage, len(d.Bundle))
	for mime, value := range d.Bundle {
		form, err := k.form(ctx, mime, value)
		if err != nil {
			return err
		}
		data[mime] = form
	}
	if d.Metadata == nil {
		d.Metadata = make(map[string]json.RawMessage)
	}
	content := map[string]any{"data": data, "metadata": d.Metadata, "transient": map[string]string{}}
	if d.ID != "" {
		content["transient"] = map[string]string{"display_id": d.ID}
	}
	switch {
	case e.Kind == python.KindResult:
		content["execution_count"] = d.Count
		return k.publish(ctx, "execute_result", parent, content)
	case d.Update:
		return k.publish(ctx, "update_display_data", parent, content)
	}
	return k.publish(ctx, "display_data", parent, content)
}

// form returns one form of a display, which may be a blob.
func (k *kernel) form(ctx context.Context, mime string, value json.RawMessage) (json.RawMessage, error) {
	var blob spool.Blob
	if json.Unmarshal(value, &blob) != nil || blob.Digest == "" {
		return value, nil
	}
	b, err := k.blob(ctx, blob.Digest)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return json.Marshal(fmt.Sprintf("[%s of %d bytes, which cannot be read]", mime, blob.Size))
	case mime == "application/json" || strings.HasSuffix(mime, "+json"):
		return b, nil
	case strings.HasPrefix(mime, "text/") || mime == "image/svg+xml" || mime == "application/javascript":
		return json.Marshal(string(bytes.ToValidUTF8(b, []byte("\ufffd"))))
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(b))
}

func (k *kernel) blob(ctx context.Context, d spool.Digest) ([]byte, error) {
	r, err := k.Run.Blob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
