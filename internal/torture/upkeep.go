package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/store"
)

// Limits of a torture of upkeep.
const (
	upkeepRuns    = 40          // runs of a state directory
	upkeepKills   = 3           // kills of a job, before it is let to end
	upkeepTime    = time.Minute // of a job, on a busy machine
	upkeepSegment = 96 << 10    // so that some runs have several segments
	upkeepAge     = 48 * time.Hour
)

// upkeepJob is what a process does to a state directory.
type upkeepJob string

const (
	jobMigrate  upkeepJob = "migrate"  // files the runs of the layout of earlier versions
	jobCompress upkeepJob = "compress" // compresses their logs
	jobPrune    upkeepJob = "prune"    // deletes old ones
)

// upkeepPoints are the steps of a job before which its process may die, beside any
// other moment.
var upkeepPoints = map[upkeepJob][]string{
	jobMigrate:  {"index.write", "index.create", "index.replace", "index.replaced", "store.indexed", "store.move", "store.moved"},
	jobCompress: {"store.compress", "store.compressed", "index.write"},
	jobPrune:    {"store.sweep", "index.write"},
}

// UpkeepOptions configure a torture of upkeep.
type UpkeepOptions struct {
	Seed   uint64
	Binary string // the spool binary under test
	Dir    string // the working directory
	Kills  int    // continue until so many processes were killed
}

// UpkeepReport is the result of a torture of upkeep.
type UpkeepReport struct {
	Seed       uint64         `json:"seed"`
	DurationMs int64          `json:"duration_ms"`
	Runs       int            `json:"runs"`  // in all state directories
	Lists      int            `json:"lists"` // that were made while a process worked
	Kills      map[string]int `json:"kills"` // by what the process did
	Violations []Violation    `json:"violations,omitempty"`
}

// Failed reports whether a promise was broken.
func (r *UpkeepReport) Failed() bool { return len(r.Violations) > 0 }

// Killed returns how many processes were killed.
func (r *UpkeepReport) Killed() (n int) {
	for _, k := range r.Kills {
		n += k
	}
	return n
}

// WriteTable writes the report for a person.
func (r *UpkeepReport) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "seed\t%d\ntime\t%.1f s\nruns\t%d\nlists meanwhile\t%d\n", r.Seed, float64(r.DurationMs)/1000, r.Runs, r.Lists)
	for _, job := range []upkeepJob{jobMigrate, jobCompress, jobPrune} {
		fmt.Fprintf(tw, "killed while it did %s\t%d\n", job, r.Kills[string(job)])
	}
	fmt.Fprintf(tw, "violations\t%d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(tw, "%s\n", v)
	}
	return tw.Flush()
}

// Upkeep fills state directories with finished runs and kills processes that migrate
// them to the layout of this version, compress their logs and prune them. After every
// death it checks that nothing is lost, repeated or torn, and after every job that the
// index says what one says that is built anew.
func Upkeep(ctx context.Context, o UpkeepOptions) (*UpkeepReport, error) {
	began := time.Now()
	r := &UpkeepReport{Seed: o.Seed, Kills: make(map[string]int)}
	for round := uint64(0); r.Killed() < o.Kills && !r.Failed(); round++ {
		u := &upkeep{
			UpkeepOptions: o, report: r, dir: filepath.Join(o.Dir, fmt.Sprintf("upkeep-%d", round)),
			random: rand.New(rand.NewPCG(o.Seed, round)), began: time.Now().UTC(),
		}
		if err := u.round(ctx); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if r.Failed() { // the directory stays, to look at
			break
		}
		if err := os.RemoveAll(u.dir); err != nil {
			return nil, err
		}
	}
	r.DurationMs = time.Since(began).Milliseconds()
	return r, nil
}

// upkeep is one state directory.
type upkeep struct {
	UpkeepOptions
	report *UpkeepReport
	dir    string
	random *rand.Rand
	began  time.Time
	runs   map[string]*keptRun
}

func (u *upkeep) violate(kind Kind, format string, args ...any) {
	u.report.Violations = append(u.report.Violations, Violation{Kind: kind, Detail: filepath.Base(u.dir) + ": " + fmt.Sprintf(format, args...)})
}

// round lets processes do every job, and kills most of them.
func (u *upkeep) round(ctx context.Context) error {
	if err := u.generate(); err != nil {
		return err
	}
	u.report.Runs += len(u.runs)
	for _, job := range []upkeepJob{jobMigrate, jobCompress, jobPrune} {
		if job == jobPrune {
			u.mayGo()
		}
		for kill := range upkeepKills + 1 {
			args := []string{upkeepRole, string(job), u.dir, "", "0"}
			var after time.Duration // when to kill it; zero for never
			points := upkeepPoints[job]
			switch {
			case kill == upkeepKills: // it may end
			case u.random.IntN(4) == 0:
				after = time.Duration(1+u.random.IntN(60)) * time.Millisecond
			default:
				point, hits := points[u.random.IntN(len(points))], 12
				if strings.HasPrefix(point, "index.") { // which happens to many runs at once
					hits = 2
				}
				args[3], args[4] = point, strconv.Itoa(1+u.random.IntN(hits))
			}
			killed, err := u.work(ctx, args, after)
			if err != nil {
				return fmt.Errorf("%s: %w", job, err)
			}
			when := fmt.Sprintf("after %s", job)
			if killed {
				u.report.Kills[string(job)]++
				when = fmt.Sprintf("after a kill of %s at %q, hit %s, or %v", job, args[3], args[4], after)
			}
			if err := u.check(when); err != nil {
				return err
			}
		}
		if job == jobPrune {
			u.mustBeGone()
		}
		if err := u.compareIndexes(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// work starts a process that does a job, lists runs while it works, and reports
// whether it was killed.
func (u *upkeep) work(ctx context.Context, args []string, after time.Duration) (killed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, upkeepTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.Binary, append([]string{WorkerVerb}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return false, err
	}
	if after > 0 {
		timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) // it may have ended
		defer timer.Stop()
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err = <-ended:
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL && ctx.Err() == nil {
				return true, nil
			}
			return false, err
		default:
		}
		if err := u.list("while a process works"); err != nil {
			cancel()
			<-ended
			return false, err
		}
		u.report.Lists++
	}
}

// upkeepRole is the first argument of a worker that does a job.
const upkeepRole = "upkeep"

// keepUp does a job, in a process of its own. It dies at the nth hit of a point.
func keepUp(job upkeepJob, dir, point, hit string) error {
	n, err := strconv.Atoi(hit)
	if err != nil {
		return fmt.Errorf("read hit: %w", err)
	}
	if point != "" {
		failpoint.Enable(point, n, failpoint.Kill)
	}
	s, err := store.Open(dir, store.Options{SegmentBytes: upkeepSegment})
	if err != nil {
		return err
	}
	later := time.Now().Add(time.Hour)
	switch job {
	case jobMigrate:
		for more := true; more && err == nil; {
			_, more, err = s.File(context.Background(), later)
		}
	case jobCompress:
		if _, err = s.CompressEnded(context.Background(), time.Time{}, later, nil); errors.Is(err, store.ErrNoCompression) {
			err = nil
		}
	case jobPrune:
		swept := store.Swept{More: true}
		for swept.More && err == nil {
			swept, err = s.Sweep(store.Retention{Age: upkeepAge}, nil, nil)
		}
	default:
		err = fmt.Errorf("unknown job %q", job)
	}
	return errors.Join(err, s.Close())
}

// describe is for comparisons and reports.
func describe(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // plain fields never fail
		panic(err)
	}
	return string(b)
}
