package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// span is a flag for a duration as people write it: 90s, 10m, 1h30m, 7d, 2w.
type span time.Duration

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Set implements [pflag.Value].
func (s *span) Set(text string) error {
	d, err := parseSpan(text)
	if err == nil {
		*s = span(d)
	}
	return err
}

// String implements [pflag.Value].
func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return formatAge(time.Duration(*s))
}

// Type implements [pflag.Value].
func (s *span) Type() string { return "time" }

// parseSpan parses a duration that may have days and weeks.
func parseSpan(text string) (time.Duration, error) {
	rest, total := text, time.Duration(0)
	for _, u := range []struct {
		suffix string
		unit   time.Duration
	}{{"w", week}, {"d", day}} {
		number, after, ok := strings.Cut(rest, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n >= 0) || n*float64(u.unit) > math.MaxInt64/4 {
			return 0, spanError(text, true)
		}
		total += time.Duration(n * float64(u.unit))
		rest = after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > math.MaxInt64/4 {
			return 0, spanError(text, true)
		}
		total += d
	} else if text == "" {
		return 0, spanError(text, true)
	}
	return total, nil
}

// spanError says how to write a duration, which may have days or not.
func spanError(text string, days bool) error {
	units, such := "m or h", "30s, 10m or 1h30m"
	if days {
		units, such = "m, h, d or w", "30s, 10m, 1h30m or 7d"
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && !strings.HasPrefix(text, "-") {
		return fmt.Errorf("%q has no unit: write %ss for seconds, or use %s", text, text, units)
	}
	return fmt.Errorf("%q is not a duration, such as %s", text, such)
}

// moment is a flag for a point in time: a duration before now, a date or a time.
type moment struct{ time.Time }

// momentLayouts are the forms of a date or a time, in local time where the form
// has no zone.
var momentLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly}

// Set implements [pflag.Value].
func (m *moment) Set(text string) error {
	if d, err := parseSpan(text); err == nil {
		m.Time = time.Now().Add(-d)
		return nil
	}
	for _, layout := range momentLayouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			m.Time = t
			return nil
		}
	}
	now := time.Now()
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			m.Time = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local)
			return nil
		}
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return spanError(text, true)
	}
	return fmt.Errorf("%q is neither a duration before now, such as 10m, nor a time, such as 15:04 or 2026-11-15T15:04:05Z", text)
}

// String implements [pflag.Value].
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

// Type implements [pflag.Value].
func (m *moment) Type() string { return "time" }
