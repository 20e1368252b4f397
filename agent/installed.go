package agent

// Installed is an agent as it is on a machine; local.Agents lists them.
type Installed struct {
	Agent   string `json:"agent"`
	Path    string `json:"path,omitempty"` // empty if it is not installed
	Version string `json:"version,omitempty"`
	// Error says why it cannot be used, if it is installed and cannot.
	Error string `json:"error,omitempty"`
	// Install is the command that installs it.
	Install string `json:"install,omitempty"`
	Modes   []Mode `json:"modes"`
	// Capabilities are what can be done with a turn in the best mode; see
	// [Started].
	Capabilities []string `json:"capabilities,omitempty"`
}

// MaxPrompt bounds the bytes of a prompt.
const MaxPrompt = 8 << 20

// Limits of the images of a prompt.
const (
	// DefaultImageBytes is [Config.ImageBytes] if that is zero.
	DefaultImageBytes = 5 << 20
	// MaxImageBytes is the most that Config.ImageBytes can be: what the event of a
	// run without a state directory holds, which has no place for blobs.
	MaxImageBytes = 10 << 20
)
