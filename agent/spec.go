package agent

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// Spec returns a spec that starts an agent with this configuration. The
// caller may fill in the rest of it. Most agents need variables of the
// environment, such as an API key: see [spool.EnvPolicy].
func (c Config) Spec() spool.Spec {
	data, err := json.Marshal(c)
	if err != nil {
		panic("agent: encode configuration: " + err.Error()) // strings, numbers and lists of them
	}
	return spool.Spec{Engine: Engine, Config: data}
}
