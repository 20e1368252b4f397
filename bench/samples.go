package main

import (
	"math"
	"slices"
	"time"
)

// sampleKey names a series of samples.
type sampleKey struct{ subject, metric string }

// samples are all measured values, in seconds, bytes, or plain numbers.
type samples map[sampleKey][]float64

func (s samples) add(subject, metric string, v float64) {
	k := sampleKey{subject, metric}
	s[k] = append(s[k], v)
}

func (s samples) addTime(subject, metric string, d time.Duration) {
	s.add(subject, metric, d.Seconds())
}

// stat reduces a series to one value.
type stat struct {
	name string
	of   func(sorted []float64) float64
}

var (
	median = stat{"median", func(v []float64) float64 { return v[len(v)/2] }}
	p99    = stat{"p99", func(v []float64) float64 { return v[min(len(v)*99/100, len(v)-1)] }}
	lowest = stat{"min", func(v []float64) float64 { return v[0] }}
	most   = stat{"max", func(v []float64) float64 { return v[len(v)-1] }}
)

// value reduces a series to one value; it is NaN without samples.
func (s samples) value(subject, metric string, st stat) float64 {
	v := slices.Sorted(slices.Values(s[sampleKey{subject, metric}]))
	if len(v) == 0 {
		return math.NaN()
	}
	return st.of(v)
}
