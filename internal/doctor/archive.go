package doctor

import (
	"errors"
	"io/fs"
	"time"

	"github.com/spool-run/spool/internal/archive"
)

// archiveLate is how long a run may wait for the archive before that is a problem.
const archiveLate = time.Hour

// shipping checks how runs get to the archive, by what their shipper said last.
func shipping(dir string, now time.Time) Finding {
	st, err := archive.ReadStatus(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ok("no archive: finished runs are only on this machine")
	}
	if err != nil {
		return problem("remove the file, which the next server writes anew", "the status of the archive cannot be read: %v", err)
	}
	var waits time.Duration
	if st.PendingRuns > 0 {
		waits = now.Sub(st.PendingSince).Round(time.Second)
	}
	switch next := "look at \"spool archive status\", and whether the archive can be reached and has room"; {
	case st.Conflicts > 0:
		return problem("compare both with \"spool archive ls\", then export and import the run here, which gives it another id, and delete it",
			"the archive %s has other runs with the ids of %d runs: %s", st.Archive, st.Conflicts, st.Conflict)
	case st.Full:
		return problem(next, "no more runs may wait for the archive %s: finished runs may be deleted before it has them", st.Archive)
	case waits > archiveLate:
		return problem("start \"spool serve --archive\", or "+next, "%d runs wait for the archive %s, since %v: %s", st.PendingRuns, st.Archive, waits, st.Failure)
	case st.Failure != "":
		return warning(next, "shipping to the archive %s fails, and is tried again: %s", st.Archive, st.Failure)
	}
	return ok("the archive %s had all finished runs but %d, %v ago", st.Archive, st.PendingRuns, now.Sub(st.Updated).Round(time.Second))
}
