package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/collector"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/fdtable"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/python"
)

// logPolicy is what becomes of logs. Keepers of different policies work side by
// side in one state directory.
type logPolicy struct {
	sync      store.SyncPolicy
	retention store.Retention
}

// host returns the options of a host with every engine.
func (p logPolicy) host(dir string) host.Options {
	o := settling(dir)
	o.Engines = engines()
	o.Sync, o.Retention = p.sync, p.retention
	return o
}

// build names this program and a policy.
func (p logPolicy) build() (string, error) {
	info, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("identify this program: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %v", info.Size(), info.ModTime().UnixNano(), p))
	return hex.EncodeToString(sum[:8]), nil
}

// args are the arguments of a keeper with that policy.
func (p logPolicy) args(dir, build string) []string {
	args := []string{
		"-state", dir, "-build", build, "-fsync", string(p.sync),
		"-retain-age", p.retention.Age.String(), "-retain-bytes", strconv.FormatInt(p.retention.TotalBytes, 10),
		"-retain-runs", strconv.Itoa(p.retention.Runs), "-compress-after", p.retention.Compress.String(),
	}
	for _, r := range p.retention.Labels {
		args = append(args, "-retain-label", r.Label()+"="+r.Age.String())
	}
	return args
}

// settling are the options of a host that only finishes what dead ones left.
func settling(dir string) host.Options {
	return host.Options{Dir: dir, Measure: measure, Sweep: func(owner string) error {
		_, err := launch.SweepOwner(owner)
		if dead, lookErr := host.LookupOwner(dir, owner); lookErr == nil {
			err = errors.Join(err, keeper.RemoveSocket(dir, dead.Address))
		}
		return err
	}}
}

// measure returns what process trees use.
func measure(pids []int) (map[int]spool.Resources, error) {
	trees, err := launch.Measure(pids)
	if err != nil {
		return nil, err
	}
	used := make(map[int]spool.Resources, len(trees))
	for pid, u := range trees {
		used[pid] = spool.Resources{
			Processes: u.Processes, CPUMs: u.CPU.Milliseconds(), Memory: u.Memory,
			Read: u.Read, Written: u.Written, Source: u.Source,
		}
	}
	return used, nil
}

// openKeeper opens a state directory whose runs live in keepers.
func openKeeper(dir string, p logPolicy, opts Options) (*keeper.Backend, error) {
	build, err := p.build()
	if err != nil {
		return nil, err
	}
	o := settling(dir)
	o.Retention = p.retention
	return keeper.Open(keeper.Options{
		Dir: dir, Build: build, Host: o, Limits: opts.Limits, Inherit: inherit, Archive: opts.Archive,
		Keeper: func(dir string) *exec.Cmd {
			cmd := child(keeperRole, p.args(dir, build)...)
			cmd.Env = keeper.Environ()
			return cmd
		},
	})
}

// inherit gives a kernel the variables of this process that it would inherit
// if it were started here: a keeper has only a few.
func inherit(spec *spool.Spec) error {
	if spec.Engine != python.EngineKernel {
		return nil
	}
	return kernel.Inherit(spec, os.Environ())
}

// keep is the main function of a keeper.
func keep(args []string, stdout, stderr *os.File) int {
	var dir, build, sync string
	var p logPolicy
	flags := flag.NewFlagSet(keeperRole, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dir, "state", "", "")
	flags.StringVar(&build, "build", "", "")
	flags.StringVar(&sync, "fsync", "", "")
	flags.DurationVar(&p.retention.Age, "retain-age", 0, "")
	flags.Int64Var(&p.retention.TotalBytes, "retain-bytes", 0, "")
	flags.IntVar(&p.retention.Runs, "retain-runs", 0, "")
	flags.Func("retain-label", "", func(text string) error {
		i := strings.LastIndexByte(text, '=')
		age, err := time.ParseDuration(text[i+1:])
		if i < 0 || err != nil {
			return fmt.Errorf("%q is no rule: %w", text, err)
		}
		rule, err := store.ParseLabel(text[:i], age)
		p.retention.Labels = append(p.retention.Labels, rule)
		return err
	})
	flags.DurationVar(&p.retention.Compress, "compress-after", 0, "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	p.sync = store.SyncPolicy(sync)
	if err := serveKeeper(dir, build, p, stdout); err != nil {
		fmt.Fprintf(stderr, "%s spool keeper (pid %d): %v\n", time.Now().UTC().Format(time.RFC3339), os.Getpid(), err)
		return 1
	}
	return 0
}

func serveKeeper(dir, build string, p logPolicy, stdout *os.File) error {
	collector.Tune()
	if err := environ.HideBlock(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go collector.ReturnWhenQuiet(ctx)
	go fdtable.Reserve(fdtable.Size)
	// A keeper outlives the terminal and the pipes of the program that
	// started it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	if err := launch.ResetSIGCHLD(); err != nil {
		return err
	}
	return keeper.Serve(ctx, keeper.ServeOptions{
		Host: p.host(dir), Build: build,
		Ready: func() {
			_, _ = fmt.Fprintln(stdout, keeper.ReadyText) // the program that started it may be gone
			// Not closed: its number must not become that of something else.
			if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
				_ = unix.Dup2(int(null.Fd()), int(stdout.Fd()))
				_ = null.Close()
			}
			// What the start of a process leaves is collected while the program connects,
			// and not between the first hundred runs.
			go runtime.GC()
		},
	})
}
