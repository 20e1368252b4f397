package host

import (
	"iter"

	"github.com/spool-run/spool"
)

// MergeRuns yields the live runs of a list among the stored ones. Both are in the
// order of the filter. Of a stored run that is known, the live description counts. It
// ends after an error that is not one of a single run.
func MergeRuns(f *spool.Filter, live []spool.Info, known map[spool.RunID]bool, stored iter.Seq2[spool.Info, error]) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		for info, err := range stored {
			if err != nil {
				if !yield(info, err) || info.ID == "" {
					return
				}
				continue
			}
			if known[info.ID] {
				continue
			}
			for len(live) > 0 && f.Compare(&live[0], &info) < 0 {
				if !yield(live[0], nil) {
					return
				}
				live = live[1:]
			}
			if !yield(info, nil) {
				return
			}
		}
		for _, info := range live {
			if !yield(info, nil) {
				return
			}
		}
	}
}
