package torture_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/torture"
)

func TestSoakKernels(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel engine needs Linux")
	}
	report, err := torture.SoakKernels(t.Context(), torture.SoakOptions{
		Seed: 1, Binary: servertest.Binary(t), Dir: t.TempDir(), Kernels: 24, Cells: 240,
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed() {
		var b strings.Builder
		if err := report.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		t.Error(b.String())
	}
	cells := 0
	for _, n := range report.Outcomes {
		cells += n
	}
	if cells != 240 || len(report.Outcomes) < 4 {
		t.Errorf("outcomes %v", report.Outcomes)
	}
}
