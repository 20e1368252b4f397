package agent

// Verdict is what a [Policy] says about an approval.
type Verdict string

// The verdicts.
const (
	VerdictAllow Verdict = "allow"
	VerdictDeny  Verdict = "deny"
	VerdictAsk   Verdict = "ask" // leave the decision to a person
)

// Policy decides approvals before a person is asked. The first rule that matches
// decides. In a file, as "spool agent --policy" reads it, a policy is TOML:
//
//	default = "ask"     # if no rule matches: ask, allow or deny
//	deadline = "10m"    # an ask without an answer is denied then
//
//	[[rule]]
//	verdict = "allow"
//	command = ["go test", "git status"]
//
//	[[rule]]
//	verdict = "deny"
//	kind = ["file_change"]
//	path = ["/etc/**", ".git/**"]
//	reason = "Do not change the configuration."
//
//	[[rule]]
//	verdict = "ask"
//	command = ["rm", "git push"]
//	retype = true       # a person types the command again to allow it
type Policy struct {
	// Default is the verdict if no rule matches. Empty means [VerdictAsk].
	Default Verdict `json:"default,omitempty"`
	// DeadlineMs is how long an ask stays open before it is denied, unless
	// [Config.AskTimeoutMs] is set.
	DeadlineMs int64  `json:"deadline_ms,omitempty"`
	Rules      []Rule `json:"rule,omitempty"`
}

// Rule matches an approval if each of its conditions matches; a rule without
// conditions matches everything. A condition matches if one of its values does.
//
// A rule that allows must match every part of the request: all files, all
// commands of a line, and the line must use no other shell features. A rule that
// denies or asks matches if one part matches.
type Rule struct {
	Verdict Verdict `toml:"verdict" json:"verdict"`
	// Kinds are compared with [Approval.Kind]. Only a rule that has the kind
	// "network" is about hosts, where an isolated run asks about them.
	Kinds []string `toml:"kind" json:"kind,omitempty"`
	// Commands are the first words of command lines.
	Commands []string `toml:"command" json:"command,omitempty"`
	// Paths are patterns of files, with * within a name and ** across
	// names. Relative patterns begin at the working directory.
	Paths []string `toml:"path" json:"path,omitempty"`
	// Tools are patterns of [Approval.Tool], such as "mcp__github__*", and of
	// hosts with their ports, such as "*.example.org:443".
	Tools []string `toml:"tool" json:"tool,omitempty"`
	// Retype has a person who allows it type the command again, where the verdict is
	// [VerdictAsk]; see [spool.Ask].
	Retype bool `toml:"retype" json:"retype,omitempty"`
	// Reason tells the agent why it was denied.
	Reason string `toml:"reason" json:"reason,omitempty"`
}
