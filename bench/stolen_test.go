package main

import "testing"

func TestStolen(t *testing.T) {
	before := parseMachineTime("cpu  100 0 50 800 10 0 0 40 7 7")
	for _, tt := range []struct {
		after  string
		stolen float64
	}{
		{"cpu  150 0 70 880 10 0 0 90 9 9", 0.25},
		{"cpu  150 0 70 880 10 0 0 40 9 9", 0},
		{"cpu  100 0 50 800 10 0 0 40 7 7", 0}, // no time has passed
		{"cpu  100 0 50", 0},                   // of an old kernel
		{"cpu  150 0 70 880 10 0 0 x 9 9", 0},
		{"", 0},
	} {
		if got := parseMachineTime(tt.after).stolenSince(before); got != tt.stolen {
			t.Errorf("%q: %v of the time was stolen, expected %v", tt.after, got, tt.stolen)
		}
	}
}
