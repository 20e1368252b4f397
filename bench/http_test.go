package main

import (
	"bufio"
	"strings"
	"testing"
	"time"
)

// TestHTTPRows checks that the rows of spool serve have goals that can be judged, and
// names of their own.
func TestHTTPRows(t *testing.T) {
	s, labels := make(samples), map[string]bool{}
	for i := range httpRows {
		r := &httpRows[i]
		if labels[r.label] {
			t.Errorf("two rows %q", r.label)
		}
		labels[r.label] = true
		subject, metric := r.other()
		s.add(subjectSpool, r.metric, 1)
		s.add(subject, metric, 1)
	}
	r := &report{HTTP: s.results(httpRows), HTTPNotes: []string{"a peer was not measured"}}
	if len(r.HTTP) != len(httpRows) {
		t.Errorf("%d results of %d rows", len(r.HTTP), len(httpRows))
	}
	var table strings.Builder
	if err := r.writeTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first event of a finished run, p50", "- a peer was not measured"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
}

func TestSeek(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader("event: info\ndata: {}\n\nid: 1\ndata: "+strings.Repeat("x", 100)+"\n\ndata: {\"kind\":\"output\"}\n"), 16)
	before := time.Now()
	if at, err := seek(bufio.NewReader(r), "data: ", `"kind":"output"`); err != nil || at.Before(before) {
		t.Errorf("found at %v, error %v", at, err)
	}
	if _, err := seek(r, "data: ", "more"); err == nil {
		t.Error("found what is not there")
	}
}
