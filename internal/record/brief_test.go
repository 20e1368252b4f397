package record_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// briefOf returns what the brief form of a description must have.
func briefOf(i *spool.Info) map[string]string {
	m := map[string]string{
		"id": string(i.ID), "name": i.Name, "engine": i.Engine, "state": string(i.State),
		"created": i.Created.UTC().String(), "ended": i.Ended.UTC().String(),
	}
	if i.Outcome != nil {
		m["outcome"] = string(i.Outcome.Kind)
	}
	if i.Workspace != nil {
		m["workspace"] = "yes"
	}
	for k, v := range i.Labels {
		m["label "+k] = v
	}
	return m
}

// briefFields returns what it has.
func briefFields(b *record.Brief) map[string]string {
	m := map[string]string{
		"id": string(b.ID), "name": string(b.Name), "engine": string(b.Engine), "state": string(b.State),
		"created": b.Created.UTC().String(), "ended": b.Ended.UTC().String(),
	}
	if b.Outcome != nil {
		m["outcome"] = string(b.Outcome)
	}
	if b.Workspace {
		m["workspace"] = "yes"
	}
	for _, l := range b.Labels {
		m["label "+string(l.Name)] = string(l.Value)
	}
	return m
}

// The brief form of a description with every field, and of one with hardly any, says
// what the description says.
func TestBriefSaysWhatTheDescriptionSays(t *testing.T) {
	full := filled[spool.Info](nil)
	plain := spool.Info{ID: "r1", Engine: spool.EngineProcess}
	quoted := spool.Info{ID: "r2", Engine: spool.EngineProcess, Title: `a "b" \ {`, Argv: []string{`}],"name":"no"`}}
	for _, info := range []spool.Info{full, plain, quoted} {
		var b record.Brief
		if data := info.AppendJSON(nil); !b.Decode(data) {
			t.Errorf("cannot read %s", data)
		} else if diff := cmp.Diff(briefOf(&info), briefFields(&b)); diff != "" {
			t.Errorf("%s: %s", data, diff)
		}
	}
	// What has escapes is left to the whole decoder.
	var b record.Brief
	if escaped := (spool.Info{ID: "r3", Name: `a"b`}); b.Decode(escaped.AppendJSON(nil)) {
		t.Error("read a name with a quote")
	}
}

// The brief form reads no bytes as something that they do not say.
func FuzzBrief(f *testing.F) {
	full := filled[spool.Info](nil)
	f.Add(full.AppendJSON(nil))
	f.Add([]byte(`{"id":"r","engine":"process","created":"2026-11-17T01:02:03Z","state":"closed","outcome":{"kind":"exited","code":0},"last":1,"bytes":2}`))
	f.Add([]byte(`{"id":"r","labels":{"a":"b","c":""},"details":{"x":[1,"]",{}]},"state":"running"}`))
	f.Add([]byte(`{"id":"ä","name":"\u0041"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b record.Brief
		if !b.Decode(data) {
			return
		}
		info, err := record.DecodeDescription(data, spool.RunID(b.ID))
		if err != nil || !bytes.Equal(info.AppendJSON(nil), data) {
			return // not as we write it, and only what we wrote has a checksum
		}
		if diff := cmp.Diff(briefOf(&info), briefFields(&b)); diff != "" {
			t.Errorf("%q: %s", data, diff)
		}
	})
}
