package modeltest

import (
	"context"
	"errors"
	"strings"
)

// shells lists the tools that run a command, with the name of their argument.
var shells = []struct{ tool, command string }{
	{"exec_command", "cmd"}, // codex
	{"Bash", "command"},     // claude
	{"bash", "command"},     // opencode, pi
}

// Shell answers by running a command with the agent's tool.
func Shell(command string) Step {
	return func(ctx context.Context, r *Request) (Reply, error) {
		for _, s := range shells {
			if r.Tool(s.tool) == nil {
				continue
			}
			args := map[string]any{s.command: command}
			switch s.tool {
			case "exec_command":
				args["yield_time_ms"] = 30_000 // the longest time codex allows
			case "Bash", "bash":
				args["description"] = "Runs a command"
			}
			return Call(s.tool, args)(ctx, r)
		}
		return Reply{}, errors.New("the agent offers no tool that runs commands")
	}
}

// writers lists the tools that write a file, with the names of their arguments.
var writers = []struct{ tool, path, content string }{
	{"Write", "file_path", "content"}, // claude
	{"write", "filePath", "content"},  // opencode
	{"write", "path", "content"},      // pi
}

// Write answers by writing a file with the agent's tool. Codex needs a path
// below its directory, claude an absolute one.
func Write(path, content string) Step {
	return func(ctx context.Context, r *Request) (Reply, error) {
		for _, w := range writers {
			if t := r.Tool(w.tool); t != nil && strings.Contains(string(t.Parameters), `"`+w.path+`"`) {
				return Call(w.tool, map[string]string{w.path: path, w.content: content})(ctx, r)
			}
		}
		if r.Tool("apply_patch") == nil {
			return Reply{}, errors.New("the agent offers no tool that writes files")
		}
		var patch strings.Builder
		patch.WriteString("*** Begin Patch\n*** Add File: " + path + "\n")
		for line := range strings.Lines(content) {
			patch.WriteString("+" + strings.TrimSuffix(line, "\n") + "\n")
		}
		patch.WriteString("*** End Patch\n")
		return CallCustom("apply_patch", patch.String())(ctx, r)
	}
}
