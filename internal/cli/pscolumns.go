package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
)

// runColumn is one column of a list of runs.
type runColumn struct {
	column
	name    string
	text    func(info *spool.Info, now time.Time) string
	compare func(a, b *spool.Info) int
}

func textColumn(name string, least int, text func(*spool.Info) string) runColumn {
	return runColumn{
		column: column{title: strings.ToUpper(name), least: least}, name: name,
		text:    func(i *spool.Info, _ time.Time) string { return text(i) },
		compare: func(a, b *spool.Info) int { return cmp.Compare(text(a), text(b)) },
	}
}

func numberColumn(name string, number func(*spool.Info) int64, format func(int64) string) runColumn {
	return runColumn{
		column: column{title: strings.ToUpper(name)}, name: name,
		text:    func(i *spool.Info, _ time.Time) string { return format(number(i)) },
		compare: func(a, b *spool.Info) int { return cmp.Compare(number(a), number(b)) },
	}
}

// timeColumn is a point in the life of a run.
func timeColumn(name string, at func(*spool.Info) time.Time) runColumn {
	return runColumn{
		column: column{title: strings.ToUpper(name)}, name: name,
		text:    func(i *spool.Info, _ time.Time) string { return formatTime(at(i)) },
		compare: func(a, b *spool.Info) int { return at(a).Compare(at(b)) },
	}
}

// runColumns are all columns that a list of runs can have.
var runColumns = []runColumn{
	textColumn("id", 0, func(i *spool.Info) string { return shorten(string(i.ID)) }),
	textColumn("name", 12, func(i *spool.Info) string { return i.Name }),
	textColumn("status", 12, func(i *spool.Info) string { return stateText(*i) }),
	textColumn("state", 0, func(i *spool.Info) string { return string(i.State) }),
	{
		column: column{title: "AGE"}, name: "age",
		text:    func(i *spool.Info, now time.Time) string { return formatAge(now.Sub(i.Created)) },
		compare: func(a, b *spool.Info) int { return b.Created.Compare(a.Created) },
	},
	{
		column: column{title: "TOOK"}, name: "took",
		text:    func(i *spool.Info, now time.Time) string { return formatAge(lifetime(i, now)) },
		compare: func(a, b *spool.Info) int { now := time.Now(); return cmp.Compare(lifetime(a, now), lifetime(b, now)) },
	},
	timeColumn("created", func(i *spool.Info) time.Time { return i.Created }),
	timeColumn("ended", func(i *spool.Info) time.Time { return i.Ended }),
	numberColumn("bytes", func(i *spool.Info) int64 { return i.Bytes }, formatBytes),
	numberColumn("events", func(i *spool.Info) int64 { return int64(i.Last) }, formatNumber),
	numberColumn("pid", func(i *spool.Info) int64 { return int64(i.Pid) }, formatNumber),
	textColumn("engine", 0, func(i *spool.Info) string { return i.Engine }),
	textColumn("cwd", 16, func(i *spool.Info) string { return i.Cwd }),
	textColumn("labels", 16, func(i *spool.Info) string { return labelsText(i.Labels) }),
	textColumn("owner", 0, func(i *spool.Info) string { return i.Owner }),
	textColumn("node", 0, func(i *spool.Info) string { return i.Node }),
	textColumn("mirror", 0, mirrorColumn),
	textColumn("command", 8, func(i *spool.Info) string { return commandColumn(*i) }),
}

// mirrorColumn says which node copies a run, and how far behind it is.
func mirrorColumn(i *spool.Info) string {
	m := i.Mirror
	if m == nil {
		return ""
	}
	if m.LagMs == 0 {
		return m.Node
	}
	return fmt.Sprintf("%s -%d %v", m.Node, i.Last-min(i.Last, m.Last), (time.Duration(m.LagMs) * time.Millisecond).Round(100*time.Millisecond))
}

func columnNames() []string {
	names := make([]string, len(runColumns))
	for i, c := range runColumns {
		names[i] = c.name
	}
	return names
}

func columnNamed(name string) (runColumn, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, c := range runColumns {
		if c.name == name {
			return c, nil
		}
	}
	err := usageErrorf("unknown column %q: use %s", name, strings.Join(columnNames(), ", "))
	if near := nearest(name, columnNames()); near != "" {
		err = &hintedError{err, fmt.Sprintf("did you mean %s?", near)}
	}
	return runColumn{}, err
}
