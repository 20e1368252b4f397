package execserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The name of a skill has at most maxSkillName characters.
func TestSkillNamesAreBounded(t *testing.T) {
	for n, want := range map[int]string{maxSkillName: "", maxSkillName + 1: "the name exceeds 64 characters"} {
		name := strings.Repeat("é", n)
		file := capabilityFile{Contents: "---\nname: " + name + "\ndescription: d\n---\n", native: "/skills/a/SKILL.md"}
		skill, err := describeSkill(capabilitySkill{Instructions: file}, nil)
		if want == "" && (err != nil || skill.Name != name) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("a name of %d characters: %q, %v", n, skill.Name, err)
		}
	}
}

// What a skill tells of a tool has at most maxToolWord or maxToolText characters.
// What is longer is left out, and with its type or value the tool.
func TestToolsOfSkillsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		field    string
		limit    int
		required bool
		get      func(*skillTool) *string
	}{
		{"type", maxToolWord, true, func(t *skillTool) *string { return &t.Type }},
		{"value", maxToolText, true, func(t *skillTool) *string { return &t.Value }},
		{"description", maxToolText, false, func(t *skillTool) *string { return t.Description }},
		{"transport", maxToolWord, false, func(t *skillTool) *string { return t.Transport }},
		{"command", maxToolText, false, func(t *skillTool) *string { return t.Command }},
		{"url", maxToolText, false, func(t *skillTool) *string { return t.URL }},
	} {
		parse := func(n int) *skillTool {
			fields := map[string]string{"type": "mcp", "value": "v", tt.field: strings.Repeat("é", n)}
			var list []string
			for name, value := range fields {
				list = append(list, fmt.Sprintf("%s: %q", name, value))
			}
			_, d, err := parseSkillMetadata("dependencies: {tools: [{" + strings.Join(list, ", ") + "}]}")
			if err != nil {
				t.Fatalf("%s: %v", tt.field, err)
			}
			if d == nil {
				return nil
			}
			return &d.Tools[0]
		}
		if tool := parse(tt.limit); tool == nil || tt.get(tool) == nil || *tt.get(tool) != strings.Repeat("é", tt.limit) {
			t.Errorf("%s of %d characters: %+v", tt.field, tt.limit, tool)
		}
		tool := parse(tt.limit + 1)
		if tt.required && tool != nil || !tt.required && (tool == nil || tt.get(tool) != nil) {
			t.Errorf("%s of %d characters: %+v", tt.field, tt.limit+1, tool)
		}
	}
}

// The record of a plugin's installation has at most maxRemoteIdentity bytes, and
// the id in it at most maxToolText.
func TestInstallationRecordsAreBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.json")
	for _, tt := range []struct {
		id, size int
		want     string
	}{
		{maxToolText, maxRemoteIdentity, ""},
		{maxToolText, maxRemoteIdentity + 1, "file is too large to read: limit is 16384 bytes"},
		{maxToolText + 1, maxRemoteIdentity, "unsupported record"},
	} {
		id := strings.Repeat("i", tt.id)
		record := fmt.Sprintf(`{"schema_version":1,"remote_plugin_id":%q}`, id)
		record += strings.Repeat(" ", tt.size-len(record))
		if err := os.WriteFile(file, []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := remoteIdentity(file)
		if tt.want == "" && (err != nil || got == nil || *got != id) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("an id of %d bytes in a record of %d: %v, want %q", tt.id, tt.size, err, tt.want)
		}
	}
}

// The plugins and skills of an answer have at most maxCapabilityAnswer bytes.
func TestAnswersOfDiscoveriesAreBounded(t *testing.T) {
	const half = maxCapabilityAnswer / 2
	text := strings.Repeat("x", half-2) // it has quotes in JSON
	var d discovered
	first, second := d.admit(text, 1), d.admit(text, 1)
	if !first || !second || d.size != maxCapabilityAnswer || d.count != 2 {
		t.Errorf("an answer of %d bytes is refused after %d", maxCapabilityAnswer, d.size)
	}
	d = discovered{}
	if !d.admit(text, 1) || d.admit(text+"x", 1) || d.size != half || d.count != maxCapabilities {
		t.Errorf("one more byte is admitted: %d bytes", d.size)
	}
}

// A search for the paths of a pattern examines at most maxGlobEntries names.
func TestNamesOfAPatternAreBounded(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.env", "b.env"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := newGlob(dir + "/*.env")
	if err != nil {
		t.Fatal(err)
	}
	const names = 3 // with the directory
	s := globSearch{glob: g, examined: maxGlobEntries - names}
	if err := filepath.WalkDir(dir, s.visit); err != nil || s.examined != maxGlobEntries || len(s.found) != 2 {
		t.Errorf("%d names: found %q, %v", s.examined, s.found, err)
	}
	s = globSearch{glob: g, examined: maxGlobEntries - names + 1}
	if err := filepath.WalkDir(dir, s.visit); err == nil || !strings.Contains(err.Error(), "which has more than 200000 files") {
		t.Errorf("one more: %v", err)
	}
}
