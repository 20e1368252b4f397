package execserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// Limits of capabilities/discoverV2.
const (
	maxCapabilityLocations = 512     // directories searched
	maxCapabilities        = 2048    // plugins and skills in an answer
	maxCapabilityAnswer    = 4 << 20 // approximate bytes of an answer
	maxCapabilityWarnings  = 64
	maxRemoteIdentity      = 16 << 10 // bytes of a plugin's installation record
)

// discovered is the result of capabilities/discoverV2.
type discovered struct {
	Plugins  []installedPlugin `json:"plugins"`
	Skills   []installedSkill  `json:"skills"` // outside of plugins
	Warnings []string          `json:"warnings"`

	count, size int
}

// installedPlugin is a plugin in the cache of CODEX_HOME. The client decides
// whether it is enabled.
type installedPlugin struct {
	ID             string           `json:"id"` // name@marketplace
	DisplayName    string           `json:"displayName"`
	RemotePluginID *string          `json:"remotePluginId"`
	Version        string           `json:"version"`
	Root           string           `json:"root"`
	Files          capabilityPlugin `json:"files"`
	Skills         []installedSkill `json:"skills"`
}

// installedSkill describes a skill without its instructions.
type installedSkill struct {
	Name             string             `json:"name"` // with the name of its plugin, if any
	Description      string             `json:"description"`
	ShortDescription *string            `json:"shortDescription"`
	Path             string             `json:"path"`
	DiscoveryRoot    *skillRoot         `json:"discoveryRoot,omitempty"`
	Dependencies     *skillDependencies `json:"dependencies"`
	Policy           *skillPolicy       `json:"policy"`
}

type skillRoot struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

// capabilityLocation is a directory with skills, or that of an installed plugin.
type capabilityLocation struct {
	path   string
	root   *skillRoot       // nil for a plugin
	plugin *installedPlugin // nil for skills
}

// discover returns the plugins and skills that codex finds on this machine: in
// CODEX_HOME, in .agents of the home directory, and in the system's directory.
func (e environment) discover(params json.RawMessage) (any, error) {
	var p struct {
		Cwd     string          `json:"cwd"`
		Sandbox json.RawMessage `json:"sandbox"`
	}
	if err := decode(params, &p, "cwd"); err != nil {
		return nil, err
	}
	if err := checkReads(p.Sandbox); err != nil {
		return nil, err
	}
	var foreign *fileuri.HostError
	if _, err := fileuri.Parse(p.Cwd); err != nil && !errors.As(err, &foreign) {
		return nil, err
	}
	d := &discovered{Plugins: []installedPlugin{}, Skills: []installedSkill{}, Warnings: []string{}}
	locations, complete := e.capabilityLocations()
	if !complete {
		d.warn("some capability locations could not be resolved; discovery may be incomplete")
	}
	for _, location := range locations {
		if !d.add(location) {
			d.warn("some capability metadata could not be loaded; discovery may be incomplete")
		}
		if d.count >= maxCapabilities || d.size >= maxCapabilityAnswer {
			d.Warnings = append([]string{"capability discovery size limit reached"}, d.Warnings[:min(len(d.Warnings), maxCapabilityWarnings-1)]...)
			break
		}
	}
	slices.SortStableFunc(d.Plugins, func(a, b installedPlugin) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Root, b.Root)) })
	return d, nil
}

// capabilityLocations returns the directories to search, and reports whether
// they are all.
func (e environment) capabilityLocations() (locations []capabilityLocation, complete bool) {
	complete = true
	if e.codexHome != "" {
		locations, complete = cachedPlugins(filepath.Join(e.codexHome, "plugins", "cache"))
	}
	seen := make(map[string]bool)
	for _, root := range []struct{ id, dir, name string }{
		{"codex-home-skills", e.codexHome, "skills"},
		{"user-agent-skills", e.home, ".agents/skills"},
		{"system-skills", e.system, "skills"},
	} {
		path := filepath.Join(root.dir, root.name)
		if root.dir == "" || seen[path] {
			continue
		}
		seen[path] = true
		locations = append(locations, capabilityLocation{path: path, root: &skillRoot{root.id, fileuri.Format(path)}})
	}
	if len(locations) > maxCapabilityLocations {
		return locations[:maxCapabilityLocations], false
	}
	return locations, complete
}

// cachedPlugins returns the active version of every plugin in codex's cache,
// whose directories are marketplace/name/version.
func cachedPlugins(cache string) (locations []capabilityLocation, complete bool) {
	tree, err := walkTree(context.Background(), host{}, cache, walkOptions{MaxDepth: 1, MaxDirectories: 2000, MaxEntries: 20_000, FollowDirectorySymlinks: true})
	if err != nil {
		return nil, errors.Is(err, syscall.ENOENT)
	}
	complete = !tree.Truncated && len(tree.Errors) == 0
	for _, entry := range tree.Entries {
		dir, err := fileuri.Parse(entry.Path)
		if err != nil || entry.Kind != "directory" || filepath.Dir(filepath.Dir(dir)) != cache {
			continue
		}
		name, marketplace := filepath.Base(dir), filepath.Base(filepath.Dir(dir))
		version := activeVersion(dir)
		if !isPluginWord(name, ".") || !isPluginWord(marketplace, "") || version == "" {
			continue
		}
		if len(locations) == maxCapabilityLocations {
			return locations, false
		}
		remote, err := remoteIdentity(filepath.Join(dir, ".codex-remote-plugin-install.json"))
		complete = complete && err == nil
		root := filepath.Join(dir, version)
		locations = append(locations, capabilityLocation{path: root, plugin: &installedPlugin{
			ID: name + "@" + marketplace, RemotePluginID: remote, Version: version, Root: fileuri.Format(root),
		}})
	}
	return locations, complete
}

// isPluginWord reports whether s consists of ASCII letters, digits, dashes,
// underscores and the characters in more.
func isPluginWord(s, more string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_"+more, r))
	})
}

// activeVersion returns the version of a plugin that codex uses: local, or the
// highest. It returns "" if there is none.
func activeVersion(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var versions []string
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && name != "." && name != ".." && isPluginWord(name, ".+") {
			versions = append(versions, name)
		}
	}
	switch {
	case len(versions) == 0:
		return ""
	case slices.Contains(versions, "local"):
		return "local"
	}
	return slices.MaxFunc(versions, compareVersions)
}

// compareVersions compares two semantic versions, and other strings by bytes.
func compareVersions(a, b string) int {
	va, oka := parseVersion(a)
	vb, okb := parseVersion(b)
	if !oka || !okb {
		return strings.Compare(a, b)
	}
	return cmp.Or(slices.Compare(va.numbers, vb.numbers), comparePrerelease(va.prerelease, vb.prerelease), strings.Compare(va.build, vb.build))
}

type semanticVersion struct {
	numbers           []uint64
	prerelease, build string
}

func parseVersion(s string) (v semanticVersion, ok bool) {
	s, v.build, _ = strings.Cut(s, "+")
	s, v.prerelease, _ = strings.Cut(s, "-")
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil || len(part) > 1 && part[0] == '0' {
			return v, false
		}
		v.numbers = append(v.numbers, n)
	}
	return v, len(v.numbers) == 3
}

// comparePrerelease compares the parts after the dash: a version without one is
// higher, numbers are lower than words.
func comparePrerelease(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(len(b), len(a))
	}
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		na, erra := strconv.ParseUint(a, 10, 64)
		nb, errb := strconv.ParseUint(b, 10, 64)
		switch {
		case erra == nil && errb == nil:
			return cmp.Compare(na, nb)
		case erra == nil:
			return -1
		case errb == nil:
			return 1
		}
		return strings.Compare(a, b)
	})
}

// remoteIdentity reads the id under which a plugin was installed. It returns nil
// if the plugin was not installed from a catalog.
func remoteIdentity(file string) (*string, error) {
	f, err := openRegular(file, os.O_RDONLY)
	if errors.Is(err, syscall.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readAtMost(context.Background(), f, 0, maxRemoteIdentity)
	if err != nil {
		return nil, err
	}
	var record struct {
		Schema int    `json:"schema_version"`
		ID     string `json:"remote_plugin_id"`
	}
	if err := json.Unmarshal(b, &record); err != nil {
		return nil, err
	}
	id := strings.TrimSpace(record.ID)
	if record.Schema != 1 || id == "" || len(id) > maxToolText {
		return nil, errors.New("unsupported record")
	}
	return &id, nil
}

func (d *discovered) warn(text string) {
	if len(d.Warnings) < maxCapabilityWarnings {
		d.Warnings = append(d.Warnings, text)
	}
}

// add adds the plugin or the skills of a location and reports whether all of it
// could be read. A location that does not exist is complete.
func (d *discovered) add(location capabilityLocation) bool {
	info, err := os.Stat(location.path)
	if err != nil {
		return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES)
	}
	if !info.IsDir() {
		return true
	}
	root := discoverRoot(host{}, "", location.path)
	complete := root.Error == nil && len(root.Warnings) == 0
	plugin := location.plugin
	if plugin != nil {
		if root.Plugin == nil {
			return false
		}
		name, err := parseManifest(*root.Plugin)
		if err != nil {
			return false
		}
		plugin.DisplayName, plugin.Files, plugin.Skills = name, *root.Plugin, []installedSkill{}
	}
	skills, all := root.describeSkills(location.root)
	complete = complete && all
	if plugin == nil {
		for _, skill := range skills {
			if d.admit(skill, 1) {
				d.Skills = append(d.Skills, skill)
			}
		}
		return complete
	}
	plugin.Skills = append(plugin.Skills, skills[:min(len(skills), max(0, maxCapabilities-d.count-1))]...)
	if d.admit(plugin, 1+len(plugin.Skills)) {
		d.Plugins = append(d.Plugins, *plugin)
	}
	return complete
}

// admit counts a plugin or a skill, or reports that the answer is full.
func (d *discovered) admit(v any, count int) bool {
	b, err := json.Marshal(v)
	if err != nil || d.count+count > maxCapabilities || d.size+len(b) > maxCapabilityAnswer {
		d.count = maxCapabilities
		return false
	}
	d.count += count
	d.size += len(b)
	return true
}

// parseManifest returns the display name of a plugin. A manifest that codex
// would refuse is an error.
func parseManifest(files capabilityPlugin) (string, error) {
	var m struct {
		Name      json.RawMessage `json:"name"`
		Apps      string          `json:"apps"`
		Interface struct {
			DisplayName string `json:"displayName"`
		} `json:"interface"`
	}
	if err := json.Unmarshal([]byte(files.Manifest.Contents), &m); err != nil {
		return "", err
	}
	if len(m.Name) > 0 && m.Name[0] != '"' {
		return "", errors.New("the name is not a string")
	}
	if name := strings.TrimSpace(m.Interface.DisplayName); name != "" {
		return name, nil
	}
	return manifestName(files.Manifest), nil
}

// manifestName returns the name in a manifest, or that of its directory.
func manifestName(manifest capabilityFile) string {
	var m struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(manifest.Contents), &m); err != nil {
		return ""
	}
	if strings.TrimSpace(m.Name) == "" {
		return filepath.Base(pluginRoot(manifest.native))
	}
	return m.Name
}

// describeSkills describes the skills of a root and reports whether all are
// valid.
func (r *capabilityRoot) describeSkills(from *skillRoot) (skills []installedSkill, complete bool) {
	namespaces := make(map[string]string)
	for _, manifest := range r.NamespaceManifests {
		if name := manifestName(manifest); name != "" {
			namespaces[pluginRoot(manifest.native)] = name
		}
	}
	complete = true
	for _, files := range r.Skills {
		skill, err := describeSkill(files, namespaces)
		if err != nil {
			complete = false
			continue
		}
		skill.DiscoveryRoot = from
		skills = append(skills, skill)
	}
	return skills, complete
}

func describeSkill(files capabilitySkill, namespaces map[string]string) (installedSkill, error) {
	header, err := parseSkillHeader(files.Instructions.Contents)
	if err != nil {
		return installedSkill{}, err
	}
	dir := filepath.Dir(files.Instructions.native)
	name := cmp.Or(header.name, oneLine(filepath.Base(dir)), "skill")
	if utf8.RuneCountInString(name) > maxSkillName {
		return installedSkill{}, fmt.Errorf("the name exceeds %d characters", maxSkillName)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if namespace, ok := namespaces[at]; ok {
			name = namespace + ":" + name
			break
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if utf8.RuneCountInString(name) > maxQualifiedSkill {
		return installedSkill{}, fmt.Errorf("the name exceeds %d characters with that of its plugin", maxQualifiedSkill)
	}
	skill := installedSkill{
		Name: name, Description: header.description, ShortDescription: header.shortDescription, Path: files.Instructions.Path,
	}
	if files.Metadata != nil {
		if policy, dependencies, err := parseSkillMetadata(files.Metadata.Contents); err == nil {
			skill.Policy, skill.Dependencies = policy, dependencies
		}
	}
	return skill, nil
}
