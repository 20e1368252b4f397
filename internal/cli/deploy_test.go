package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// blocks returns the indented blocks of a section of a page.
func blocks(t *testing.T, page, heading string) []string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var all []string
	for _, block := range regexp.MustCompile(`(?m)(^    .*\n|^\n)+`).FindAllString(section, -1) {
		if block = strings.ReplaceAll(strings.TrimLeft("\n"+block, "\n"), "\n    ", "\n"); strings.HasPrefix(block, "    ") {
			all = append(all, block[4:])
		}
	}
	return all
}

// checkServe checks that a command line is one of this program.
func checkServe(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := Tree().Find(args)
	if err != nil {
		t.Errorf("%q: %v", args, err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil || len(cmd.Flags().Args()) > 0 {
		t.Errorf("%q: %v, and the arguments %q", args, err, cmd.Flags().Args())
	}
}

// TestDeployments reads the unit of systemd and the manifests of Kubernetes in the page
// about clusters.
func TestDeployments(t *testing.T) {
	const page = "../../docs/cluster.md"
	unit := blocks(t, page, "### With systemd")[0]
	keys := make(map[string]string)
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			t.Errorf("the unit has the line %q", line)
		}
		keys[k] = v
	}
	start := strings.Fields(keys["ExecStart"])
	if len(start) == 0 || keys["KillMode"] != "process" || keys["WantedBy"] == "" {
		t.Fatalf("the unit is\n%s", unit)
	}
	checkServe(t, start[1:])

	all := blocks(t, page, "### On Kubernetes")
	d := yaml.NewDecoder(bytes.NewReader([]byte(all[len(all)-1])))
	kinds := make(map[string]bool)
	for {
		var m struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct{ Name string }
			Spec       struct {
				ServiceName string `yaml:"serviceName"`
				Template    struct {
					Spec struct {
						InitContainers []struct{ Command []string } `yaml:"initContainers"`
						Containers     []struct{ Args []string }
					}
				}
			}
		}
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.APIVersion == "" || m.Metadata.Name == "" {
			t.Errorf("a manifest is %+v", m)
		}
		kinds[m.Kind] = true
		if m.Kind != "StatefulSet" {
			continue
		}
		pod := m.Spec.Template.Spec
		if m.Spec.ServiceName != "spool" || len(pod.Containers) != 1 || len(pod.InitContainers) != 1 {
			t.Fatalf("the set is %+v", m)
		}
		checkServe(t, pod.Containers[0].Args)
		join, _, _ := strings.Cut(pod.InitContainers[0].Command[2], "<")
		checkServe(t, strings.Fields(join)[1:])
	}
	if !kinds["Service"] || !kinds["StatefulSet"] {
		t.Errorf("the manifests are %v", kinds)
	}
}
