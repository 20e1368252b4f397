package cli

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/engine/agent"
	"github.com/spool-run/spool/engine/kernel"
	"github.com/spool-run/spool/engine/process"
	"github.com/spool-run/spool/host"
)

// engines are what a keeper can run. Each is made by its first use.
func engines() map[string]host.NewEngine {
	return map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) {
			return process.New(process.Options{Owner: owner})
		},
		spool.EngineKernel: func(owner string) (engine.Engine, error) {
			return kernel.New(kernel.Options{Owner: owner})
		},
		spool.EngineAgent: func(owner string) (engine.Engine, error) {
			return agent.New(agent.Options{Owner: owner})
		},
	}
}
