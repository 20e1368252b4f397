package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	s := make(samples)
	for _, v := range []float64{0.003, 0.001, 0.002} {
		s.add(subjectSpool, "start.ordinary", v)
		s.add(subjectCodex, "start.ordinary", 40*v)
	}
	s.add(subjectSpool, "bulk.rate", 300e6)
	s.add(subjectCodex, "bulk.rate", 250e6)
	s.add(subjectSpool, "stalled.written", 0.5)
	s.add(subjectCodex, "stalled.written", math.Inf(1))
	s.add(subjectFloor, "start", 0.001)
	r := &report{BesideCodex: s.results(besideCodex), SpoolAlone: s.results(spoolAlone)}

	var table strings.Builder
	if err := r.writeTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"start to closed, ordinary client, p50", "2.00 ms", "80.0 ms", "40.0×", "≥ 30×", "ok"},
		{"start to closed, ordinary client, p99", "3.00 ms", "120 ms", "40.0×"},
		{"1 GiB of output", "300 MB/s", "250 MB/s", "1.20×", "≥ 1.5×", "MISSED"},
		{"200 MB to a client that does not read, written after", "500 ms", "never"},
		{"start to closed, ordinary client, beside os/exec, p50", "2.00 ms", "1.00 ms", "2.00×", "≤ 2.5×", "ok"},
	} {
		found := false
		for line := range strings.Lines(table.String()) {
			found = found || strings.Join(strings.Fields(line), " ") == strings.Join(want, " ")
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, &table)
		}
	}
	if n := r.missed(); n != 1 {
		t.Errorf("%d goals missed, want 1", n)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
