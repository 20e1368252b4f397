package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// pyConfig adds the configuration of the kernel engine to a spec.
func (a *app) pyConfig(spec *spool.Spec, o *pyOptions, remote bool) error {
	c := python.KernelConfig{
		Interpreter: o.python, Preload: o.preload, Input: python.InputAsk,
		StartTimeoutMs: o.start.Milliseconds(), MemoryBytes: int64(o.memory), Once: o.once,
	}
	if o.init != "" {
		b, err := os.ReadFile(o.init)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("read the init code: %w", err)}
		}
		if c.Init, err = decodeSource(b); err != nil {
			return fmt.Errorf("read the init code: %w", err)
		}
	}
	if c.Trace = o.trace; c.Trace != "" && !remote {
		path, err := filepath.Abs(c.Trace)
		if err != nil {
			return fmt.Errorf("find the trace: %w", err)
		}
		c.Trace = path
	}
	if !remote {
		if strings.ContainsRune(c.Interpreter, filepath.Separator) && !strings.HasPrefix(c.Interpreter, "~") {
			path, err := filepath.Abs(c.Interpreter)
			if err != nil {
				return fmt.Errorf("find the interpreter: %w", err)
			}
			c.Interpreter = path
		}
	}
	if o.session != "" {
		if spec.Limits.Idle = o.idle; o.idle == 0 {
			spec.Limits.Idle = defaultSessionIdle
		}
	}
	var err error
	if spec.Config, err = json.Marshal(c); err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	return nil
}
