package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool/local"
)

// storeOptions say how the logs of this machine are kept. They are flags of
// exec-server; for the other commands only the configuration file sets them.
type storeOptions struct {
	age      time.Duration
	bytes    byteCount
	compress time.Duration
	fsync    string
}

// add defines the flags.
func (o *storeOptions) add(flags *pflag.FlagSet) {
	o.bytes = local.DefaultRetainBytes
	flags.DurationVar(&o.age, "retain-age", local.DefaultRetainAge, "delete logs this `time` after the run ended")
	flags.Var(&o.bytes, "retain-bytes", "delete the oldest logs when all logs exceed this many `bytes`")
	flags.DurationVar(&o.compress, "compress-after", local.DefaultCompressAfter, "compress logs this `time` after the run ended; negative means never")
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
	opts := local.Options{RetainAge: o.age, RetainBytes: int64(o.bytes), CompressAfter: o.compress}
	switch o.fsync {
	case "", "none":
	case string(local.SyncInterval), string(local.SyncAlways):
		opts.Sync = local.SyncPolicy(o.fsync)
	default:
		return opts, usageErrorf("--fsync %q: use none, interval or always", o.fsync)
	}
	return opts, nil
}
