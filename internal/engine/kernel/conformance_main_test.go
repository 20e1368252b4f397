//go:build linux

package kernel_test

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/python"
)

func mkfifo(name string) error { return syscall.Mkfifo(name, 0o600) }

// shared is one host for the tests that need nothing special, so that they
// share its zygotes.
var shared struct {
	once sync.Once
	dir  string
	host *host.Host
	err  error
}

func sharedLab(t *testing.T) lab {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "spool-kernel-"); shared.err != nil {
			return
		}
		shared.host, shared.err = host.Open(host.Options{Dir: shared.dir, Engines: map[string]host.NewEngine{
			python.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
		}})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return lab{backend: shared.host}
}

// closeShared closes what the tests shared.
func closeShared() error {
	if shared.host == nil {
		return nil
	}
	err := shared.host.Close()
	_ = os.RemoveAll(shared.dir)
	return err
}

func init() {
	kernel.AroundTests = func(m interface{ Run() int }) int {
		code := servertest.Main(m)
		if err := closeShared(); err != nil && code == 0 {
			println("close:", err.Error())
			code = 1
		}
		return code
	}
}
