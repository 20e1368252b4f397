package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/bench/internal/peers"
)

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		goal bound
		v    float64
		want verdict
	}{
		{bound{atMost: 2}, 2, met},
		{bound{atMost: 2}, 2.09, near},
		{bound{atMost: 2}, 2.11, missed},
		{bound{atLeast: 2}, 2, met},
		{bound{atLeast: 2}, 1.91, near},
		{bound{atLeast: 2}, 1.89, missed},
		{bound{atMost: zero}, 0, met},
		{bound{atMost: zero}, 1, missed},
	} {
		if got := test.goal.verdict(test.v); got != test.want {
			t.Errorf("%v with the goal %+v is %q, want %q", test.v, test.goal, got, test.want)
		}
	}
}

// TestPeerResults checks that Spool is compared with the best peer which lost
// nothing.
func TestPeerResults(t *testing.T) {
	s := make(samples)
	for peer, v := range map[string]float64{subjectSpool: 0.063, "lossy": 0.01, "slow": 0.2, "good": 0.1} {
		s.add(peer, "peers.lines", v)
		s.add(peer, "peers.lines.lost", 0)
		s.add(peer, "peers.starts", 1000*v)
	}
	s.add(subjectSpool, "peers.lines", 0.061)
	s.add(subjectSpool, "peers.lines", 0.062)
	s.add("lossy", "peers.lines.lost", 0.5)
	b := &bench{samples: s, field: &peerBench{
		all: []*measuredPeer{
			{Peer: peers.Peer{Name: subjectSpool}}, {Peer: peers.Peer{Name: "lossy", Version: "1.0"}}, {Peer: peers.Peer{Name: "slow"}},
			{Peer: peers.Peer{Name: "good"}}, {Peer: peers.Peer{Name: "gone", Version: "2.0", Source: "npm gone"}, absent: "403 Forbidden"},
		},
		losses: map[sampleKey]*honesty{
			{subjectSpool, "cut"}: {Rounds: 5},
			{"lossy", "cut"}:      {Rounds: 5, Lost: 0.5, Repeated: 0.0001, Torn: 3, Unknown: 1},
			{"lossy", "setsid"}:   {Rounds: 5, Survivors: 4},
		},
		notes: map[sampleKey]string{{"slow", "bulk"}: "not done after 20s"},
	}}
	r := &report{Rounds: 5}
	b.fillPeers(r)
	page := filepath.Join(t.TempDir(), "page.md")
	if err := r.writeComparison(page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| speed and memory | spool | lossy | slow | good | to the best peer | goal |  |\n|---|---|---|---|---|---|---|---|\n",
		"| 100,000 lines to one reader | 62.0 ms | 10.0 ms (lost 50 %) | 200 ms | 100 ms | 0.62× | ≤ 0.6× | ok within 5 %: 61.0 ms – 63.0 ms |\n",
		"| starts per second, 16 in flight | 63.0 | 10.0 | 200 | 100 | 0.32× | ≥ 1× | MISSED |\n",
		"| reader cut again and again | lost 0 %, outcome known | lost 50 %, repeated < 0.1 %, 3 torn, outcome unknown | – | – |\n",
		"| kill of a command with 4 children, 3 with setsid | – | 4 left | – | – |\n",
		"- gone 2.0 (npm gone) was not measured: 403 Forbidden\n",
		"- slow, bulk: not done after 20s\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := r.missed(); n != 1 {
		t.Errorf("%d goals missed, want 1", n)
	}
}
