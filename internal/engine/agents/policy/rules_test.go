package policy

import (
	"testing"

	"github.com/spool-run/spool/agent"
)

// mustParse reads the rules of a test.
func mustParse(t testing.TB, text string) *agent.Policy {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// An allow rule runs nothing but the commands that it names, however a nested
// script hides others.
func TestAllowRuleRunsNothingElse(t *testing.T) {
	p := mustParse(t, "default = \"ask\"\n[[rule]]\nverdict = \"allow\"\ncommand = [\"git status\", \"echo\"]")
	for _, line := range []string{
		`git status ';touch PWNED'; bash -c "git status $_"`,
		`/bin/bash -lc 'git status '"'"';touch PWNED'"'"'; bash -c "git status $_"'`,
		`/bin/bash -lc "git status ';touch PWNED'; bash -c \"git status \$_\""`,
		`bash -c "git status $PWD"`,
		`bash -c "git status "*`,
		`bash -c git\ status\;touch\ PWNED`,
		`bash -c git" status"*`,
		`bash -c ~`,
		`sh -c $X`,
		`bash -lc "echo $HOME"`,
		`sh -c 'sh -c "echo $_"'`,
		`bash -ic 'git status'`,
		`bash -c 'git status' touch`,
		`bash -O extglob -c 'git status'`,
		`./bash -c 'git status'`,
		`/tmp/sh -c 'git status'`,
		`fish -c 'git status'`,
		`$SHELL -c 'git status'`,
		`ec* x`,
		`e?ho x`,
		`~/echo x`,
		`=echo x`,
		"echo \"a\\\ntouch PWNED\"",
		"echo x\x01",
		"echo 'x\x7f'",
		`echo x >& PWNED`,
		`echo x &> PWNED`,
		`echo x >| PWNED`,
		`echo x <> PWNED`,
		`echo x <(touch PWNED)`,
		`echo $'\x41'`,
		`echo $((a[$(touch PWNED)]))`,
		`echo ${X:=1}`,
		`git $X`,
		`git "status"$X`,
		`X=1 git status`,
		`eval git status`,
	} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, "/w"); v == agent.VerdictAllow {
			t.Errorf("%s is allowed", line)
		}
	}
	for _, line := range []string{
		`git status`,
		`git "status" -s $X *.go ~/x`,
		`/bin/bash -lc 'git status'`,
		`/bin/bash -lc 'git status && echo $HOME *.go'`,
		`sh -c "git status"`,
		`git status | echo "a $HOME" 2>/dev/null`,
		`echo a\ b 'c;d' é`,
	} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, "/w"); v != agent.VerdictAllow {
			t.Errorf("%s is not allowed", line)
		}
	}
}

// Some shell builtins evaluate their arguments as code.
func TestAllowRuleOfBuiltinThatEvaluates(t *testing.T) {
	p := mustParse(t, "default = \"ask\"\n[[rule]]\nverdict = \"allow\"\ncommand = [\"test\", \"[\", \"printf\", \"let\", \"read\", \"unset\", \"trap\", \"export\", \"cd\"]")
	for _, line := range []string{
		`test -v 'a[$(touch PWNED)]'`,
		`[ -v 'a[$(touch PWNED)]' ]`,
		`[ "$X" ]`,
		`printf -v 'a[$(touch PWNED)]' x`,
		"printf -va[`touch\tPWNED`] x",
		`printf $X y`,
		`let 'a[$(touch PWNED)]'`,
		`read 'a[$(touch PWNED)]'`,
		`unset 'a[$(touch PWNED)]'`,
		`trap 'touch PWNED' EXIT`,
	} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, "/w"); v == agent.VerdictAllow {
			t.Errorf("%s is allowed", line)
		}
	}
	for _, line := range []string{`test -f x`, `[ -f x ]`, `printf '%s\n' "$HOME"`, `cd src`} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, "/w"); v != agent.VerdictAllow {
			t.Errorf("%s is not allowed", line)
		}
	}
}

// A deny rule matches however the program is spelled, and every line that is not
// fully understood.
func TestDenyRuleMatchesEverySpelling(t *testing.T) {
	p := mustParse(t, "default = \"allow\"\n[[rule]]\nverdict = \"deny\"\ncommand = [\"rm\", \"git push\"]")
	for _, line := range []string{
		`rm x`,
		`/bin/rm x`,
		`r\m x`,
		`\rm x`,
		`'rm' x`,
		`r''m x`,
		`"r"m x`,
		`$'rm' x`,
		`$(echo rm) x`,
		"`echo rm` x",
		`X=rm; $X x`,
		`X=rm; "$X" x`,
		`${X}rm x`,
		`/bin/r? x`,
		`/bin/[r]m x`,
		`{rm,x}`,
		`bash -xc 'rm x'`,
		`bash -c -x 'rm x'`,
		`bash --norc -c 'rm x'`,
		`bash -c "r""m x"`,
		`sh -c 'r\m x'`,
		`sh -c "$X"`,
		`echo rm x | sh`,
		`sh <<< 'rm x'`,
		"sh <<X\nrm x\nX",
		`bash -s < x`,
		`bash /dev/stdin < x`,
		`eval "rm x"`,
		`env rm x`,
		`env -S 'rm x'`,
		`env bash -c 'rm x'`,
		`env bash -xc 'rm x'`,
		`sudo sh -c 'rm x'`,
		`command rm x`,
		`exec rm x`,
		`busybox rm x`,
		`nice -n 5 rm x`,
		`timeout 5 rm x`,
		`echo x | xargs rm`,
		`echo rm | xargs -I{} {} x`,
		`echo rm x | xargs env`,
		`echo push | xargs git`,
		`find . -exec rm {} +`,
		`find . -exec sh -c 'rm x' \;`,
		`if true; then rm x; fi`,
		`for i in 1; do rm x; done`,
		`! rm x`,
		`(rm x)`,
		`{ rm x; }`,
		`f() { rm x; }; f`,
		`trap 'rm x' EXIT`,
		"alias l=rm\nl x",
		`hash -p /bin/rm l; l x`,
		`su -c 'rm x'`,
		`python3 -c 'import os; os.system("rm x")'`,
		`perl -e 'system "rm x"'`,
		`awk 'BEGIN{system("rm x")}'`,
		`PS4='$(rm x)' sh -c ls`,
		`LD_PRELOAD=$X ls`,
		"rm\u00a0x",
		"r\\\nm x",
		"ls\rrm x",
		`ls 'x`,
		`> y rm x`,
		`2>y rm x`,
		`</dev/null rm x`,
		`git $X`,
		`git "$X"`,
		`git pus* `,
		`git pu\sh`,
		`git {push,x}`,
	} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, "/w"); v != agent.VerdictDeny {
			t.Errorf("%s: %s", line, v)
		}
	}
	for _, line := range []string{
		`ls`,
		`cat rm`,
		`echo "rm x"`,
		`git status`,
		`ls *.go > out 2>&1`,
		`bash -lc 'ls | wc -l'`,
		`sh script.sh $X`,
		`find . -name '*.go'`,
		`awk '{print $1}' x`,
		`A=1 make`,
		`python3 x.py`,
	} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, "/w"); v != agent.VerdictAllow {
			t.Errorf("%s: %s", line, v)
		}
	}
}
