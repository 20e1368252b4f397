package sandbox

import (
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// Metrics is the payload of a metrics notice. They are in the log, where no
// script can forge them.
type Metrics struct {
	Phase   string `json:"phase"` // prewarm or startup
	Backend string `json:"backend"`

	// Of prewarm:
	Executed    *bool    `json:"executed,omitempty"`
	Reason      string   `json:"reason,omitempty"` // executed or cached
	DurationMs  *int64   `json:"duration_ms,omitempty"`
	CacheDir    string   `json:"cache_dir,omitempty"`
	Dist        string   `json:"dist,omitempty"`
	Version     string   `json:"version,omitempty"`
	Protections []string `json:"isolation,omitempty"`

	// Of startup:
	StartupMs     *int64 `json:"startup_ms,omitempty"`
	InterpreterMs *int64 `json:"interpreter_ms,omitempty"`
	PackageLoadMs *int64 `json:"package_load_ms,omitempty"`
	PackageCount  *int   `json:"package_count,omitempty"`
	Source        string `json:"source,omitempty"` // inline or file
}

// The phases of [Metrics].
const (
	PhasePrewarm = "prewarm"
	PhaseStartup = "startup"
)

func prewarmMetrics(backend string, p *guest.Prewarm) Metrics {
	return Metrics{
		Phase: PhasePrewarm, Backend: backend, Executed: &p.Executed, Reason: p.Reason, DurationMs: ms(p.Duration),
		CacheDir: p.CacheDir, Dist: p.Dist, Version: p.Version, Protections: p.Protections,
	}
}

func startupMetrics(backend, source string, s *guest.Startup) Metrics {
	return Metrics{
		Phase: PhaseStartup, Backend: backend, StartupMs: ms(s.Duration), InterpreterMs: ms(s.Interpreter),
		PackageLoadMs: ms(s.PackageLoad), PackageCount: &s.Packages, Source: source,
	}
}

// ms returns whole milliseconds, rounded up: what took time is not zero.
func ms(d time.Duration) *int64 {
	n := (d + time.Millisecond - 1).Milliseconds()
	return &n
}

func (s *session) metrics(turn spool.Seq, m Metrics) error {
	return s.notice(turn, spool.Notice{Code: NoticeMetrics, Text: m.String(), Data: encode(m)})
}

// String says it to a person.
func (m Metrics) String() string {
	if m.Phase == PhasePrewarm {
		return fmt.Sprintf("prewarm of the %s back end: %s, %d ms, in %s", m.Backend, m.Reason, *m.DurationMs, m.CacheDir)
	}
	return fmt.Sprintf("startup %d ms; loading the interpreter took %d ms, and %d packages %d ms; source %s",
		*m.StartupMs, *m.InterpreterMs, *m.PackageCount, *m.PackageLoadMs, m.Source)
}
