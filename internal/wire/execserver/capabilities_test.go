package execserver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func discoverAll(t *testing.T, env environment, dir string) discovered {
	t.Helper()
	var d discovered
	answer := env.ask(t, dir, "capabilities/discoverV2", `{"cwd":"$D"}`)
	if err := json.Unmarshal([]byte(answer), &d); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	return d
}

func TestSystemSkills(t *testing.T) {
	env, dir := testMachine(t, map[string]string{"etc/skills/a/SKILL.md": "---\nname: a\ndescription: d\n---\n"})
	want := `{"plugins":[],"skills":[{"name":"a","description":"d","shortDescription":null,"path":"$D/etc/skills/a/SKILL.md","discoveryRoot":{"id":"system-skills","path":"$D/etc/skills"},"dependencies":null,"policy":null}],"warnings":[]}`
	if got := env.ask(t, dir, "capabilities/discoverV2", `{"cwd":"$D"}`); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestCapabilityLimits(t *testing.T) {
	t.Parallel()
	const skill = "---\nname: a\ndescription: d\n---\n"
	t.Run("capabilities", func(t *testing.T) {
		files := make(map[string]string)
		for i := range maxCapabilities + 1 {
			files[fmt.Sprintf("codex/skills/%d/%d/SKILL.md", i/100, i)] = skill
		}
		env, dir := testMachine(t, files)
		d := discoverAll(t, env, dir)
		if len(d.Skills) > maxCapabilities || len(d.Skills) < maxCapabilities/2 || !strings.Contains(fmt.Sprint(d.Warnings), "incomplete") && !strings.Contains(fmt.Sprint(d.Warnings), "limit") {
			t.Errorf("%d skills, warnings %q", len(d.Skills), d.Warnings)
		}
	})
	t.Run("answer", func(t *testing.T) {
		files := make(map[string]string)
		for i := range 6 {
			files[fmt.Sprintf("codex/skills/%d/SKILL.md", i)] = "---\nname: a\ndescription: " + strings.Repeat("x", 900<<10) + "\n---\n"
		}
		env, dir := testMachine(t, files)
		d := discoverAll(t, env, dir)
		if len(d.Skills) != 4 || len(d.Warnings) == 0 || d.Warnings[0] != "capability discovery size limit reached" {
			t.Errorf("%d skills, warnings %q", len(d.Skills), d.Warnings)
		}
	})
	t.Run("locations", func(t *testing.T) {
		files := make(map[string]string)
		for i := range maxCapabilityLocations + 1 {
			files[fmt.Sprintf("codex/plugins/cache/m/p%d/1/.codex-plugin/plugin.json", i)] = "{}"
		}
		env, dir := testMachine(t, files)
		d := discoverAll(t, env, dir)
		if len(d.Plugins) != maxCapabilityLocations || len(d.Warnings) != 1 || !strings.HasPrefix(d.Warnings[0], "some capability locations") {
			t.Errorf("%d plugins, warnings %q", len(d.Plugins), d.Warnings)
		}
	})
	t.Run("bundle", func(t *testing.T) {
		_, dir := testMachine(t, nil)
		for i := range maxCapabilityBundle/maxCapabilityFile + 1 {
			file := filepath.Join(dir, fmt.Sprintf("r/%02d/SKILL.md", i))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(file, maxCapabilityFile); err != nil {
				t.Fatal(err)
			}
		}
		root := discoverRoot(host{}, "r", filepath.Join(dir, "r"))
		if len(root.Skills) != maxCapabilityBundle/maxCapabilityFile || len(root.Warnings) != 1 || root.Warnings[0] != "capability root bundle exceeds the 16777216-byte limit" {
			t.Errorf("%d skills, warnings %q", len(root.Skills), root.Warnings)
		}
	})
}

func TestCompareVersions(t *testing.T) {
	ordered := []string{"1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.9.0", "1.10.0"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s compare as %d", a, b, got)
			}
		}
	}
	if compareVersions("v10", "v2") >= 0 || compareVersions("1.0", "1.0.0") >= 0 {
		t.Error("other strings are not compared by bytes")
	}
}

// FuzzSkill checks that no file of a skill makes the parsers panic.
func FuzzSkill(f *testing.F) {
	f.Add("---\nname: a\ndescription: b: c\nmetadata:\n  short-description: x\n---\n")
	f.Add("policy: &a\n  allow_implicit_invocation: false\n  products: [codex]\ndependencies:\n  tools: [*a, {type: mcp, value: 1, oauth: {callback_port: 1}}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseSkillHeader(text)
		_, _ = parseSkillHeader("---\n" + text + "\n---\n")
		_, _, _ = parseSkillMetadata(text)
	})
}
