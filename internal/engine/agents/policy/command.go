package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/spool-run/spool/internal/lazyregexp"
)

// What shellScript finds.
type shellKind int

const (
	shellNone    shellKind = iota // no shell, or one that runs a file
	shellPlain                    // a shell with a script that is known
	shellUnknown                  // a shell that runs something else
)

// shells are the programs that run scripts. The value is true for those that
// read a plain script as the reader does.
var shells = map[string]bool{
	"sh": true, "bash": true, "zsh": true, "dash": true, "ash": true, "ksh": true,
	"mksh": false, "yash": false, "rbash": false, "fish": false, "csh": false, "tcsh": false, "pwsh": false, "powershell": false,
}

// systemPath matches the name of a program without a directory, or in a
// directory of the system.
var systemPath = lazyregexp.New(`^(/bin/|/usr/bin/|/usr/local/bin/|/opt/homebrew/bin/)?[^/]+$`)

// scriptFlags matches the options of a shell that do not change what its script
// means.
var scriptFlags = lazyregexp.New(`^-[le]*c$`)

// shellScript returns the script of a command such as "bash -lc SCRIPT". The
// script is known only if the shell that reads the line changes nothing in it.
func shellScript(c command) (string, shellKind) {
	if len(c) == 0 {
		return "", shellNone
	}
	reads, isShell := shells[path.Base(c[0].text)]
	if !isShell {
		return "", shellNone
	}
	if len(c) == 3 && reads && systemPath().MatchString(c[0].text) && c[1].fixed && scriptFlags().MatchString(c[1].text) &&
		c[2].fixed && !c[2].escaped {
		return c[2].text, shellPlain
	}
	if len(c) > 1 && c[1].fixed && c[1].text != "" && strings.IndexByte("-+", c[1].text[0]) < 0 &&
		!strings.HasPrefix(c[1].text, "/dev/") && !strings.HasPrefix(c[1].text, "/proc/") {
		return "", shellNone // a file
	}
	return "", shellUnknown
}

// evaluators are the builtins and reserved words that run their arguments as
// code, or change what later commands mean.
var evaluators = set("eval . source alias trap hash enable fc compgen complete bind jobs mapfile readarray let declare typeset " +
	"local readonly unset read getopts for select case function coproc [[ setopt shopt autoload zmodload functions sched emulate zle")

// calculators are the builtins that evaluate an argument as an arithmetic
// expression, in which some shells run substitutions.
var calculators = set("test [ exit shift return break continue wait export ulimit umask")

// evaluates reports whether a shell runs more than the words of a command.
func evaluates(c command) bool {
	if len(c) == 0 {
		return false
	}
	name := path.Base(c[0].text)
	substitutes := func(w word) bool { return strings.ContainsAny(w.text, "$`") }
	switch {
	case evaluators[name]:
		return true
	case calculators[name]:
		return slices.ContainsFunc(c[1:], substitutes) || slices.ContainsFunc(c[1:], func(w word) bool { return !w.fixed && strings.ContainsAny(w.text, "[*?") })
	case name == "printf" && len(c) > 1:
		format := c[1]
		if !format.fixed || strings.HasPrefix(format.text, "-") || slices.ContainsFunc(c[1:], func(w word) bool { return w.fixed && substitutes(w) }) {
			return true
		}
		// zsh evaluates the arguments of numbers.
		return slices.ContainsFunc(c[2:], func(w word) bool { return !w.fixed }) && strings.Contains(textVerbs.Replace(format.text), "%")
	}
	return false
}

// textVerbs removes the verbs of printf that take any text.
var textVerbs = strings.NewReplacer("%%", "", "%s", "", "%b", "", "%q", "")

func set(names string) map[string]bool {
	m := make(map[string]bool)
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

// wrappers are the programs and reserved words that run a command which their
// arguments hold.
var wrappers = set("sudo doas su runuser env nohup time nice exec command builtin noglob nocorrect xargs parallel timeout setsid stdbuf " +
	"ionice chrt taskset unshare nsenter chroot find busybox toybox strace ltrace gdb watch script flock ssh systemd-run entr " +
	"if then else elif while until do !")

// interpreters are the programs that run code which an argument or their
// standard input holds. Versions such as python3.12 are the same program.
var interpreters = set("python pypy perl ruby node nodejs deno bun php lua luajit tclsh osascript Rscript expect")

// allows reports whether a command begins with the words of an allow rule.
func allows(c command, rule []string) bool {
	if len(c) < len(rule) {
		return false
	}
	for i, text := range rule {
		if !c[i].fixed || c[i].text != text {
			return false
		}
	}
	return true
}

// begins reports whether a command may begin with the words of a deny rule. The
// program may lie in any directory.
func begins(c command, rule []string) bool {
	for i, text := range rule {
		if i == len(c) {
			return false
		}
		if !c[i].fixed { // may be any words
			return true
		}
		if c[i].text != text && !(i == 0 && path.Base(c[i].text) == text) {
			return false
		}
	}
	return true
}

// plainValue matches the value of an assignment that no program runs as code.
var plainValue = lazyregexp.New(`^[A-Za-z0-9_./:,+-]*$`)

// denies reports whether a command may run what a deny rule names.
func denies(c command, rule []string, depth int) bool {
	assigned, program := c.assignments()
	for _, a := range assigned {
		_, value, _ := strings.Cut(a.text, "=")
		if !a.fixed || !plainValue().MatchString(value) {
			return true
		}
	}
	if len(program) == 0 {
		return false
	}
	if begins(c, rule) || begins(program, rule) || runsCode(program) {
		return true
	}
	name := path.Base(program[0].text)
	if !wrappers[name] {
		return false
	}
	args := program[1:]
	switch name {
	case "find":
		i := slices.IndexFunc(args, func(w word) bool { return strings.HasPrefix(w.text, "-exec") || strings.HasPrefix(w.text, "-ok") })
		if i < 0 {
			return false
		}
		args = args[i+1:]
	case "xargs", "parallel":
		// Its standard input holds the rest of the command.
		for _, w := range args {
			base := path.Base(w.text)
			_, shell := shells[base]
			if strings.HasPrefix(w.text, "-I") || strings.HasPrefix(w.text, "-i") || strings.HasPrefix(w.text, "--replace") || strings.HasPrefix(w.text, "-J") ||
				wrappers[base] || shell || strings.Contains(w.text, "{}") {
				return true
			}
		}
		if name == "parallel" {
			return true
		}
		args = append(slices.Clone(args), word{})
	}
	for i, w := range args {
		if name == "xargs" && i == len(args)-1 {
			break
		}
		rest := args[i:]
		if begins(rest, rule) || runsCode(rest) || evaluates(rest) {
			return true
		}
		text, kind := shellScript(rest)
		if kind == shellUnknown {
			return true
		}
		if kind == shellNone && strings.ContainsAny(w.text, " \t\n;|&") {
			text, kind = w.text, shellPlain // may be a script
		}
		if kind == shellPlain && (depth == 0 || deniesScript(parseNested(text, depth-1), rule, depth-1)) {
			return true
		}
	}
	return false
}

// deniesScript reports whether a script may run what a deny rule names.
func deniesScript(s script, rule []string, depth int) bool {
	return !s.understood || slices.ContainsFunc(s.commands, func(c command) bool { return denies(c, rule, depth) })
}

// runsCode reports whether a command is an interpreter with code that is not
// in a file.
func runsCode(c command) bool {
	name := path.Base(c[0].text)
	switch name {
	case "awk", "gawk", "mawk", "nawk":
		return slices.ContainsFunc(c[1:], func(w word) bool {
			return strings.Contains(w.text, "system") || strings.Contains(w.text, "getline") || strings.Contains(w.text, "|")
		})
	}
	if !interpreters[strings.TrimRight(name, "0123456789.")] {
		return false
	}
	for _, w := range c[1:] {
		switch {
		case !w.fixed || w.text == "-" || w.text == "eval" || strings.HasPrefix(w.text, "/dev/"):
			return true
		case w.text == "-m" || !strings.HasPrefix(w.text, "-"):
			return false // a module or a file
		case strings.HasPrefix(w.text, "--"):
			if strings.HasPrefix(w.text, "--e") || strings.HasPrefix(w.text, "--p") || strings.HasPrefix(w.text, "--r") {
				return true
			}
		case strings.ContainsAny(w.text, "ceErp"):
			return true
		}
	}
	return !slices.ContainsFunc(c[1:], func(w word) bool { return strings.HasPrefix(w.text, "--v") || w.text == "-V" || w.text == "-v" })
}
