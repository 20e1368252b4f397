package isolate

// Attempt is one thing that a run tried and should not be able to do.
type Attempt struct {
	Name      string    `json:"name"`
	Guarantee Guarantee `json:"guarantee"`
	Escaped   bool      `json:"escaped"`         // it succeeded
	Errno     string    `json:"errno,omitempty"` // why it failed, such as EROFS
}

// Result is what the attempts of one profile, or of one command that wraps
// another, came to.
type Result struct {
	Name      string    `json:"name"`                // of the profile, or the command
	Mechanism string    `json:"mechanism,omitempty"` // that was used
	Refused   string    `json:"refused,omitempty"`   // why it cannot be used here
	Fix       string    `json:"fix,omitempty"`       // what to do about that
	Attempts  []Attempt `json:"attempts,omitempty"`
}
