package cli

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
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/store"
)

// keeperRole is the first argument of the process that keeps runs. It is not a
// verb: nobody but spool itself calls it.
const keeperRole = "keeper-role"

// keepPolicy is what a keeper does with logs. Keepers of different policies
// live side by side.
type keepPolicy struct {
	fsync     store.SyncPolicy
	syncEvery time.Duration
	retention store.Retention
}

// self is this program, also after its file was replaced by a newer one.
const self = "/proc/self/exe"

// build names this program and a policy.
func (p keepPolicy) build() (string, error) {
	info, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("identify this program: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %v", version().Version, info.Size(), info.ModTime().UnixNano(), p))
	return hex.EncodeToString(sum[:8]), nil
}

// args are the arguments of a keeper of that policy.
func (p keepPolicy) args(dir, build string) []string {
	return []string{
		keeperRole, "-state", dir, "-build", build, "-fsync", string(p.fsync), "-fsync-every", p.syncEvery.String(),
		"-retain-age", p.retention.Age.String(), "-retain-bytes", strconv.FormatInt(p.retention.TotalBytes, 10),
	}
}

// settling are the options of a host that only finishes what dead ones left.
func settling(dir string) host.Options {
	return host.Options{Dir: dir, Sweep: func(owner string) error {
		_, err := launch.SweepOwner(owner)
		if dead, lookErr := host.LookupOwner(dir, owner); lookErr == nil {
			err = errors.Join(err, keeper.RemoveSocket(dead.Address))
		}
		return err
	}}
}

// openKept opens the runs of a state directory, which live in keepers.
func openKept(dir string, p keepPolicy, limits spool.Limits) (*keeper.Backend, error) {
	build, err := p.build()
	if err != nil {
		return nil, err
	}
	return keeper.Open(keeper.Options{
		Dir: dir, Build: build, Host: settling(dir), Limits: limits,
		Keeper: func(dir string) *exec.Cmd {
			cmd := exec.Command(self, p.args(dir, build)...)
			cmd.Args[0] = "spool"
			cmd.Env = keeper.Environ()
			return cmd
		},
	})
}

// keep is the life of a keeper.
func keep(args []string, stdout, stderr *os.File) int {
	var dir, build, fsync string
	var p keepPolicy
	flags := flag.NewFlagSet(keeperRole, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dir, "state", "", "")
	flags.StringVar(&build, "build", "", "")
	flags.StringVar(&fsync, "fsync", "", "")
	flags.DurationVar(&p.syncEvery, "fsync-every", 0, "")
	flags.DurationVar(&p.retention.Age, "retain-age", 0, "")
	flags.Int64Var(&p.retention.TotalBytes, "retain-bytes", 0, "")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	p.fsync = store.SyncPolicy(fsync)
	err := serveKeeper(dir, build, p, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "%s spool keeper (pid %d): %v\n", time.Now().UTC().Format(time.RFC3339), os.Getpid(), err)
		return 1
	}
	return 0
}

func serveKeeper(dir, build string, p keepPolicy, stdout *os.File) error {
	tuneCollector()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// A terminal that goes away and a pipe that breaks are none of its
	// business.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	if err := launch.Quiet(); err != nil {
		return err
	}
	o := settling(dir)
	o.Engines = engines()
	o.Sync, o.SyncEvery, o.Retention = p.fsync, p.syncEvery, p.retention
	return keeper.Serve(ctx, keeper.ServeOptions{
		Host: o, Build: build,
		Ready: func() {
			_, _ = fmt.Fprintln(stdout, keeper.ReadyText) // whoever waits for it is told, or gone
			// Not closed: its number must not become that of something else.
			if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
				_ = unix.Dup2(int(null.Fd()), int(stdout.Fd()))
				_ = null.Close()
			}
		},
	})
}
