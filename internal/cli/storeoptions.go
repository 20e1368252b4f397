package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/local"
)

// storeOptions say how the logs of this machine are kept. They are flags of
// exec-server; for the other commands only the configuration file sets them.
type storeOptions struct {
	age      time.Duration
	bytes    byteCount
	runs     int
	labels   []string
	compress time.Duration
	fsync    string
	cache    byteCount // of archived runs
}

// add defines the flags.
func (o *storeOptions) add(flags *pflag.FlagSet) {
	o.bytes, o.cache = local.DefaultRetainBytes, archive.DefaultCache
	flags.DurationVar(&o.age, "retain-age", local.DefaultRetainAge, "delete logs this `time` after the run ended")
	flags.Var(&o.bytes, "retain-bytes", "delete the oldest logs when all logs exceed this many `bytes`")
	flags.IntVar(&o.runs, "retain-runs", 0, "delete the oldest logs when there are more than this `number` of finished runs; 0 for any number")
	flags.StringArrayVar(&o.labels, "retain-label", nil, "keep logs of runs with a label this long instead: `label=time`, such as ci=12h, team=core=30d or release=forever; can be repeated")
	flags.DurationVar(&o.compress, "compress-after", local.DefaultCompressAfter, "compress logs this `time` after the run ended; negative means never")
	flags.Var(&o.cache, "archive-cache", "keep this many `bytes` of runs that were fetched from the archive")
	flags.StringVar(&o.fsync, "fsync", "none", "what a crash of the machine may lose: none (the kernel's buffers), interval (a second) or always (nothing)")
}

// flags returns a new set with the flags.
func (o *storeOptions) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.add(flags)
	return flags
}

// options checks the flags.
func (o *storeOptions) options() (local.Options, error) {
	opts := local.Options{RetainAge: o.age, RetainBytes: int64(o.bytes), RetainRuns: o.runs, CompressAfter: o.compress}
	if o.cache < 0 {
		return opts, usageErrorf("--archive-cache must not be negative")
	}
	if o.runs < 0 {
		return opts, usageErrorf("--retain-runs must not be negative")
	}
	for _, text := range o.labels {
		label, age, err := parseRetainLabel(text)
		if err != nil {
			return opts, err
		}
		if opts.RetainLabels == nil {
			opts.RetainLabels = make(map[string]time.Duration)
		}
		opts.RetainLabels[label] = age
	}
	switch o.fsync {
	case "", "none":
	case string(local.SyncInterval), string(local.SyncAlways):
		opts.Sync = local.SyncPolicy(o.fsync)
	default:
		return opts, usageErrorf("--fsync %q: use none, interval or always", o.fsync)
	}
	return opts, nil
}

// forever is the time for which a run is kept that is never deleted by itself.
const forever = "forever"

// parseRetainLabel parses a value of --retain-label. A negative time means forever.
func parseRetainLabel(text string) (label string, age time.Duration, err error) {
	i := strings.LastIndexByte(text, '=')
	if i <= 0 {
		return "", 0, usageErrorf("--retain-label %q: use label=time, such as ci=12h, team=core=30d or release=forever", text)
	}
	if text[i+1:] == forever {
		return text[:i], -1, nil
	}
	age, err = parseSpan(text[i+1:])
	if err == nil && age <= 0 {
		err = errors.New("the time must be more than 0")
	}
	if err != nil {
		return "", 0, usageErrorf("--retain-label %q: %v", text, err)
	}
	return text[:i], age, nil
}
