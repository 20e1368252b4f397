package wasipy

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/spool-run/spool/internal/spare"
)

// maxMemory bounds the memory of any interpreter: what 32 bits can name, less
// a page, so that no sum of an address and a size is ever zero.
const maxMemory = 1<<32 - 1<<16

// machine is the compiled interpreter, ready to be instantiated. It is safe
// for concurrent use.
type machine struct {
	runtime  wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule
	image    *image // nil while there is none yet
	library  []byte // the archive of the standard library
	spares   spare.Pool[*instance]
	waiting  waiting

	background sync.WaitGroup // what goes on beside scripts, other than filling the pool
}

// newMachine compiles the interpreter, or loads what dir has of an earlier
// compilation.
func newMachine(ctx context.Context, dir string, code, library []byte) (*machine, error) {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the cache of compiled code: %w", err)
	}
	m := &machine{cache: cache, library: library}
	m.spares = m.newSpares()
	m.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().
		WithCompilationCache(cache).WithDebugInfoEnabled(false))
	if err := m.load(ctx, code); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *machine) load(ctx context.Context, code []byte) error {
	for _, host := range []struct {
		name  string
		calls []hostCall
	}{{"wasi_snapshot_preview1", wasiCalls}, {"spool", spoolCalls}} {
		b := m.runtime.NewHostModuleBuilder(host.name)
		for _, c := range host.calls {
			b.NewFunctionBuilder().WithGoModuleFunction(c.function(), types(c.params), types(c.results)).Export(c.name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("make the host module %s: %w", host.name, err)
		}
	}
	var err error
	m.compiled, err = m.runtime.CompileModule(experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0)), code)
	if err != nil {
		return fmt.Errorf("compile the interpreter: %w", err)
	}
	return nil
}

// close ends the machine. Its interpreters are closed before.
func (m *machine) close() {
	m.spares.Close()
	m.background.Wait()
	ctx := context.Background()
	_ = m.runtime.Close(ctx)
	_ = m.cache.Close(ctx)
	if m.image != nil {
		_ = m.image.Close()
	}
}

// types translates the letters i and I to the types i32 and i64.
func types(letters string) []api.ValueType {
	var out []api.ValueType
	for _, l := range letters {
		if l == 'I' {
			out = append(out, api.ValueTypeI64)
		} else {
			out = append(out, api.ValueTypeI32)
		}
	}
	return out
}
