package agent

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// Spec returns a spec that starts an agent with this configuration. The
// caller may fill in the rest of it. An agent that needs an API key from the
// environment gets it by [spool.Spec.Env], or by a [spool.EnvPolicy] with
// IgnoreDefaultExcludes; other policies drop variables that look like secrets.
func (c Config) Spec() spool.Spec {
	data, err := json.Marshal(c)
	if err != nil {
		panic("agent: encode configuration: " + err.Error()) // strings, numbers and lists of them
	}
	return spool.Spec{Engine: Engine, Config: data}
}
