package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Limits of capabilityRoots/discoverV1.
const (
	maxCapabilityRoots  = 128      // per request
	maxCapabilityFile   = 1 << 20  // bytes of one file
	maxCapabilityBundle = 16 << 20 // bytes of all files of a root
)

// capabilityWalk limits the search of a root.
var capabilityWalk = walkOptions{MaxDepth: 6, MaxDirectories: 2000, MaxEntries: 20_000, FollowDirectorySymlinks: true}

// pluginManifests are the places of a plugin's manifest, the preferred first.
var pluginManifests = []string{".codex-plugin/plugin.json", ".claude-plugin/plugin.json", ".cursor-plugin/plugin.json"}

// capabilityRoot is the result of capabilityRoots/discoverV1 for one root: the
// files that define its plugin and its skills. The client interprets them.
type capabilityRoot struct {
	ID                 string            `json:"id"`
	Path               string            `json:"path"`
	Plugin             *capabilityPlugin `json:"plugin"`
	Skills             []capabilitySkill `json:"skills"`
	NamespaceManifests []capabilityFile  `json:"namespaceManifests"`
	Warnings           []string          `json:"warnings"`
	Error              *string           `json:"error"`
}

// capabilityPlugin holds the manifest of a plugin and the files that it names.
type capabilityPlugin struct {
	Manifest capabilityFile  `json:"manifest"`
	MCP      *capabilityFile `json:"mcpConfig"`
	Apps     *capabilityFile `json:"appsConfig"`
}

// capabilitySkill holds a SKILL.md and the agents/openai.yaml beside it.
type capabilitySkill struct {
	Instructions capabilityFile  `json:"instructions"`
	Metadata     *capabilityFile `json:"metadata"`
}

type capabilityFile struct {
	Path     string `json:"path"`
	Contents string `json:"contents"`

	native string
}

type capabilityRootParams struct {
	ID      string          `json:"id"`
	Path    string          `json:"path"`
	Sandbox json.RawMessage `json:"sandbox"`
}

// UnmarshalJSON refuses a root without id or path.
func (p *capabilityRootParams) UnmarshalJSON(b []byte) error {
	type plain capabilityRootParams
	return decode(b, (*plain)(p), "id", "path")
}

func discoverRoots(params json.RawMessage) (any, error) {
	var p struct {
		Roots []capabilityRootParams `json:"roots"`
	}
	if err := decode(params, &p, "roots"); err != nil {
		return nil, err
	}
	if len(p.Roots) > maxCapabilityRoots {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "capability root discovery accepts at most %d roots", maxCapabilityRoots)
	}
	roots := make([]capabilityRoot, 0, len(p.Roots))
	for _, r := range p.Roots {
		t, err := treeFor(r.Sandbox, false)
		if err != nil {
			return nil, err
		}
		path, err := fileuri.Parse(r.Path)
		if err != nil {
			return nil, err
		}
		roots = append(roots, discoverRoot(t, r.ID, path))
	}
	return map[string]any{"roots": roots}, nil
}

// discoverRoot reads the files of a root. It reports a file that it cannot read
// as a warning and a root that it cannot search as the root's error.
func discoverRoot(t tree, id, path string) capabilityRoot {
	uri := fileuri.Format(path)
	d := rootDiscovery{tree: t, left: maxCapabilityBundle, root: capabilityRoot{
		ID: id, Path: uri, Skills: []capabilitySkill{}, NamespaceManifests: []capabilityFile{}, Warnings: []string{},
	}}
	fail := func(format string, args ...any) capabilityRoot {
		text := fmt.Sprintf(format, args...)
		d.root.Error = &text
		return d.root
	}
	info, err := t.info(path, followLinks)
	switch {
	case err != nil:
		return fail("failed to inspect capability root %s: %s", uri, osMessage(err))
	case !info.IsDir():
		return fail("capability root %s is not a directory", uri)
	}
	found, err := walkTree(context.Background(), t, path, capabilityWalk)
	if err != nil {
		return fail("failed to scan capability root %s: %s", uri, osMessage(err))
	}
	for _, e := range found.Errors {
		d.warn("failed to scan capability path %s: %s", e.Path, e.Message)
	}
	if found.Truncated {
		d.warn("capability scan reached its traversal limit (root: %s)", uri)
	}
	var skills, manifests []string
	for _, e := range found.Entries {
		file, err := fileuri.Parse(e.Path)
		if e.Kind != "file" || err != nil {
			continue
		}
		if filepath.Base(file) == "SKILL.md" {
			skills = append(skills, file)
		}
		if manifestRank(file) >= 0 {
			manifests = append(manifests, file)
		}
	}
	slices.Sort(skills)
	slices.SortFunc(manifests, func(a, b string) int {
		if c := strings.Compare(pluginRoot(a), pluginRoot(b)); c != 0 {
			return c
		}
		return manifestRank(a) - manifestRank(b)
	})

	plugin := d.readManifest(path)
	d.readNamespaces(path, plugin, manifests)
	if plugin != nil {
		d.readPlugin(path, *plugin)
	}
	for _, file := range skills {
		if instructions := d.read(file); instructions != nil {
			metadata := d.read(filepath.Join(filepath.Dir(file), "agents/openai.yaml"))
			d.root.Skills = append(d.root.Skills, capabilitySkill{*instructions, metadata})
		}
	}
	return d.root
}

// manifestRank returns the index of a manifest's place in [pluginManifests], or
// -1 if the file is not a manifest.
func manifestRank(file string) int {
	return slices.IndexFunc(pluginManifests, func(place string) bool { return strings.HasSuffix(file, "/"+place) })
}

// pluginRoot returns the directory of the plugin that a manifest describes.
func pluginRoot(manifest string) string { return filepath.Dir(filepath.Dir(manifest)) }

// rootDiscovery is the state of a discovery of one root.
type rootDiscovery struct {
	tree tree
	root capabilityRoot
	left int // bytes that may still be read
}

func (d *rootDiscovery) warn(format string, args ...any) {
	d.root.Warnings = append(d.root.Warnings, fmt.Sprintf(format, args...))
}

// read reads a file. It returns nil if there is none, or after a warning.
func (d *rootDiscovery) read(path string) *capabilityFile {
	uri := fileuri.Format(path)
	info, err := d.tree.info(path, followLinks)
	switch {
	case errors.Is(err, syscall.ENOENT), err == nil && !info.Mode().IsRegular():
		return nil
	case err != nil:
		d.warn("failed to inspect capability file %s: %s", uri, osMessage(err))
		return nil
	case info.Size() > maxCapabilityFile:
		d.warn("capability file %s exceeds the %d-byte limit", uri, maxCapabilityFile)
		return nil
	case info.Size() > int64(d.left):
		d.warn("capability root bundle exceeds the %d-byte limit", maxCapabilityBundle)
		return nil
	}
	file, err := openIn(d.tree, path, os.O_RDONLY)
	if err != nil {
		d.warn("failed to read capability file %s: %s", uri, osMessage(err))
		return nil
	}
	defer file.Close()
	b, err := readAtMost(context.Background(), file, info.Size(), int64(min(maxCapabilityFile, d.left)))
	if err != nil {
		d.warn("failed to read capability file %s: %s", uri, osMessage(err))
		return nil
	}
	if !utf8.Valid(b) {
		at := 0
		for at < len(b) {
			r, n := utf8.DecodeRune(b[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		d.warn("capability file %s is not UTF-8: invalid utf-8 sequence of 1 bytes from index %d", uri, at)
		return nil
	}
	d.left -= len(b)
	return &capabilityFile{Path: uri, Contents: string(b), native: path}
}

// readManifest reads the preferred manifest of a directory, or returns nil.
func (d *rootDiscovery) readManifest(dir string) *capabilityFile {
	for _, place := range pluginManifests {
		if file := d.read(filepath.Join(dir, place)); file != nil {
			return file
		}
	}
	return nil
}

// readNamespaces reads the manifests that name the skills of the root: that of
// the root or of the nearest directory above it, and those within.
func (d *rootDiscovery) readNamespaces(path string, plugin *capabilityFile, manifests []string) {
	seen := make(map[string]bool)
	outer := plugin
	for dir := path; outer == nil && dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		outer = d.readManifest(dir)
	}
	if outer != nil {
		seen[pluginRoot(outer.native)] = true
		d.root.NamespaceManifests = append(d.root.NamespaceManifests, *outer)
	}
	for _, file := range manifests {
		root := pluginRoot(file)
		if seen[root] {
			continue
		}
		seen[root] = true
		if manifest := d.read(file); manifest != nil {
			d.root.NamespaceManifests = append(d.root.NamespaceManifests, *manifest)
		}
	}
}

// readPlugin reads the files that the manifest of the root names.
func (d *rootDiscovery) readPlugin(path string, manifest capabilityFile) {
	var names struct {
		MCP  json.RawMessage `json:"mcpServers"`
		Apps json.RawMessage `json:"apps"`
	}
	_ = json.Unmarshal([]byte(manifest.Contents), &names) // the client reports a broken manifest
	plugin := &capabilityPlugin{Manifest: manifest}
	if len(names.MCP) == 0 || names.MCP[0] != '{' { // not in the manifest itself
		plugin.MCP = d.read(d.declared(path, "mcpServers", names.MCP, manifest, ".mcp.json"))
	}
	plugin.Apps = d.read(d.declared(path, "apps", names.Apps, manifest, ".app.json"))
	d.root.Plugin = plugin
}

// declared returns the path of the file that a member of a manifest names, which
// must be below the root, or the default.
func (d *rootDiscovery) declared(root, member string, value json.RawMessage, manifest capabilityFile, fallback string) string {
	fallback = filepath.Join(root, fallback)
	var name string
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &name) != nil {
		return fallback
	}
	relative, ok := strings.CutPrefix(name, "./")
	if !ok {
		d.warn("ignoring %s in %s: path must start with `./`", member, manifest.Path)
		return fallback
	}
	split := func(r rune) bool { return r == '/' || r == '\\' }
	if relative == "" || strings.Contains(relative, "\x00") || slices.Contains(strings.FieldsFunc(relative, split), "..") {
		d.warn("ignoring %s in %s: path must remain below the capability root", member, manifest.Path)
		return fallback
	}
	return filepath.Join(root, relative)
}
