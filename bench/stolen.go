package main

import (
	"os"
	"strconv"
	"strings"
)

// machineTime is the time of all processors of the machine since the machine was started, in ticks.
type machineTime struct{ stolen, all float64 }

// readMachineTime returns the zero value if the time is not known.
func readMachineTime() machineTime {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineTime{}
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return parseMachineTime(first)
}

// parseMachineTime reads the first line of /proc/stat: a word and eight numbers, of which
// the last is the time in which the hypervisor ran others. What follows them is a part of
// them.
func parseMachineTime(line string) (t machineTime) {
	words := strings.Fields(line)
	if len(words) < 9 {
		return t
	}
	for _, word := range words[1:9] {
		ticks, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return machineTime{}
		}
		t.all += ticks
		t.stolen = ticks
	}
	return t
}

// stolenSince returns which part of the time of the processors the hypervisor gave to others
// since an earlier moment.
func (t machineTime) stolenSince(earlier machineTime) float64 {
	if t.all <= earlier.all {
		return 0
	}
	return (t.stolen - earlier.stolen) / (t.all - earlier.all)
}
