package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// maxConfigFile limits one file of codex's configuration, in bytes.
const maxConfigFile = 4 << 20

// projectIgnored are the keys that a project's configuration must not set,
// because they choose where credentials and data are sent.
var projectIgnored = []string{
	"apps_mcp_product_sku",
	"chatgpt_base_url",
	"experimental_realtime_webrtc_call_base_url",
	"experimental_realtime_ws_base_url",
	"model_provider",
	"model_providers",
	"notify",
	"openai_base_url",
	"otel",
	"profile",
	"profiles",
	"responses_api_metadata",
}

// configLayers is a stack of configuration files, those that take precedence
// last.
type configLayers struct {
	Layers              []configLayer `json:"layers"`
	CloudInsertionIndex int           `json:"cloudInsertionIndex"`
}

// configLayer is the selected part of one file.
type configLayer struct {
	Source  string `json:"source"`
	BaseDir string `json:"baseDir"`
	TOML    string `json:"toml"`
}

// readConfig serves environmentConfig/read: the parts of codex's configuration
// on this machine that the selectors name.
func (e environment) readConfig(params json.RawMessage) (any, error) {
	var p struct {
		Cwd               string     `json:"cwd"`
		ConfigPaths       [][]string `json:"configPaths"`
		RequirementsPaths [][]string `json:"requirementsPaths"`
	}
	if err := decode(params, &p, "cwd", "configPaths", "requirementsPaths"); err != nil {
		return nil, err
	}
	if len(p.ConfigPaths)+len(p.RequirementsPaths) == 0 {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "at least one config or requirements path is required")
	}
	if slices.ContainsFunc(slices.Concat(p.ConfigPaths, p.RequirementsPaths), func(path []string) bool { return len(path) == 0 }) {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "TOML paths must contain at least one key segment")
	}
	cwd, err := fileuri.Parse(p.Cwd)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "%s", err)
	}
	config, requirements, err := e.loadConfig(cwd)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeInternal, "failed to load executor-local config: %s", err)
	}
	return struct {
		UserHomeDir  *string      `json:"userHomeDir"`
		CodexHomeDir *string      `json:"codexHomeDir"`
		Hostname     string       `json:"hostname"`
		Config       configLayers `json:"config"`
		Requirements configLayers `json:"requirements"`
	}{
		optionalURI(e.home), optionalURI(e.codexHome), e.hostname,
		selectLayers(config, p.ConfigPaths), selectLayers(requirements, p.RequirementsPaths),
	}, nil
}

// configFile is a file of codex's configuration.
type configFile struct {
	source string // as codex names it to people
	dir    string
	cloud  bool // the client inserts the layers of the cloud after it
	toml   tomlTable
}

// selectLayers keeps what the selectors name of every file, and leaves out files
// of which nothing is left.
func selectLayers(files []configFile, paths [][]string) configLayers {
	stack := configLayers{Layers: []configLayer{}}
	for _, f := range files {
		selected := selectKeys(f.toml.values, paths)
		if len(selected) == 0 {
			continue
		}
		if f.cloud {
			stack.CloudInsertionIndex++
		}
		f.toml.values = selected
		stack.Layers = append(stack.Layers, configLayer{f.source, fileuri.Format(f.dir), f.toml.encode()})
	}
	return stack
}

// selectKeys returns the part of a table that the paths name. A value that is
// not a table ends a path.
func selectKeys(table map[string]any, paths [][]string) map[string]any {
	selected := make(map[string]any)
	for key, value := range table {
		var rest [][]string
		whole := false
		for _, path := range paths {
			if path[0] != key {
				continue
			}
			if len(path) == 1 {
				whole = true
				break
			}
			rest = append(rest, path[1:])
		}
		inner, isTable := value.(map[string]any)
		switch {
		case whole, len(rest) > 0 && !isTable:
			selected[key] = value
		case len(rest) > 0:
			selected[key] = selectKeys(inner, rest)
		}
	}
	return selected
}

// loadConfig reads the files that codex reads on this machine for a working
// directory: those of the system, the account, trusted projects, and the
// administrator; and the requirements of the system and the administrator.
func (e environment) loadConfig(cwd string) (config, requirements []configFile, err error) {
	read := func(file string) (toml tomlTable, found bool) {
		if err != nil {
			return tomlTable{}, false
		}
		toml, found, err = readTOML(file)
		return toml, found
	}
	systemFile, managedFile := filepath.Join(e.system, "config.toml"), filepath.Join(e.system, "managed_config.toml")
	requirementsFile, userFile := filepath.Join(e.system, "requirements.toml"), filepath.Join(e.codexHome, "config.toml")
	system, _ := read(systemFile)
	user, _ := read(userFile)
	managed, isManaged := read(managedFile)
	required, isRequired := read(requirementsFile)
	if err != nil {
		return nil, nil, err
	}
	merged := make(map[string]any)
	for _, toml := range []tomlTable{system, user, managed} {
		mergeTables(merged, toml.values)
	}
	projects, err := projectFiles(cwd, e.codexHome, merged)
	if err != nil {
		return nil, nil, err
	}
	config = append(config,
		configFile{"system (" + systemFile + ")", e.system, true, system},
		configFile{"user (" + userFile + ")", e.codexHome, false, user})
	config = append(config, projects...)
	if isRequired {
		requirements = append(requirements, configFile{requirementsFile, e.system, true, required})
	}
	if isManaged {
		config = append(config, configFile{"legacy managed_config.toml (" + managedFile + ")", e.system, false, managed})
		requirements = append(requirements, configFile{managedFile, e.system, false, managedRequirements(managed.values)})
	}
	return config, requirements, nil
}

// readTOML reads a file and reports whether there is one. A relative path is that
// of an account without a home directory, which has none.
func readTOML(path string) (tomlTable, bool, error) {
	if !filepath.IsAbs(path) {
		return tomlTable{}, false, nil
	}
	file, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return tomlTable{}, false, nil
	}
	if err != nil {
		return tomlTable{}, false, fmt.Errorf("failed to read config file %s: %s", path, osMessage(err))
	}
	defer file.Close()
	b, err := readAtMost(context.Background(), file, 0, maxConfigFile)
	if err != nil {
		return tomlTable{}, false, fmt.Errorf("failed to read config file %s: %s", path, osMessage(err))
	}
	toml, err := parseTOML(string(b))
	if err != nil {
		return tomlTable{}, false, fmt.Errorf("%s: %w", path, err)
	}
	return toml, true, nil
}

// mergeTables adds the values of from to into; its values take precedence.
func mergeTables(into, from map[string]any) {
	for key, value := range from {
		a, oka := into[key].(map[string]any)
		b, okb := value.(map[string]any)
		if oka && okb {
			a = maps.Clone(a)
			mergeTables(a, b)
			value = a
		}
		into[key] = value
	}
}

// managedRequirements expresses an administrator's configuration in the older
// form as requirements.
func managedRequirements(managed map[string]any) tomlTable {
	values := make(map[string]any)
	if policy, ok := managed["approval_policy"]; ok {
		values["allowed_approval_policies"] = []any{policy}
	}
	if reviewer, ok := managed["approvals_reviewer"].(string); ok {
		allowed := []any{reviewer}
		if reviewer == "auto_review" {
			allowed = append(allowed, "user")
		}
		values["allowed_approvals_reviewers"] = allowed
	}
	if mode, ok := managed["sandbox_mode"].(string); ok {
		allowed := []any{"read-only"}
		if mode != "read-only" {
			allowed = append(allowed, mode)
		}
		values["allowed_sandbox_modes"] = allowed
	}
	return tomlTable{values: values}
}

// projectTrust decides which directories' configuration codex reads.
type projectTrust struct {
	levels map[string]string // trusted or untrusted, by path
	roots  []string          // of the project and of its repository
}

// isTrusted reports whether the user trusts a directory, or else the project.
func (t *projectTrust) isTrusted(dir string) bool {
	for _, path := range append([]string{dir}, t.roots...) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			real = path
		}
		for _, key := range []string{real, path} {
			if level, ok := t.levels[key]; ok {
				return level == "trusted"
			}
		}
	}
	return false
}

// projectFiles returns the configuration of the trusted directories from the
// root of the project down to cwd. The configuration of the account and above
// names the markers of a root and the trusted directories.
func projectFiles(cwd, codexHome string, config map[string]any) ([]configFile, error) {
	markers, err := rootMarkers(config)
	if err != nil {
		return nil, err
	}
	levels, err := trustLevels(config)
	if err != nil {
		return nil, err
	}
	root := projectRoot(cwd, markers)
	checkout, repository := repositoryRoot(cwd)
	trust := projectTrust{levels, []string{root}}
	if repository != "" {
		trust.roots = append(trust.roots, repository)
	}
	var files []configFile
	for dir := cwd; ; dir = filepath.Dir(dir) {
		found, err := projectLayers(dir, codexHome, checkout, repository, &trust)
		if err != nil {
			return nil, err
		}
		files = append(found, files...)
		if dir == root || dir == filepath.Dir(dir) {
			return files, nil
		}
	}
}

// projectLayers returns the configuration of one directory. In a linked worktree
// the hooks are those of the main one.
func projectLayers(dir, codexHome, checkout, repository string, trust *projectTrust) ([]configFile, error) {
	folder := filepath.Join(dir, ".codex")
	info, err := os.Stat(folder)
	if err != nil || !info.IsDir() || !trust.isTrusted(dir) {
		return nil, nil
	}
	if home, err := os.Stat(codexHome); folder == codexHome || err == nil && os.SameFile(info, home) {
		return nil, nil
	}
	toml, err := readProject(folder)
	if err != nil {
		return nil, err
	}
	layer := func(folder string, toml tomlTable) configFile {
		return configFile{"project (" + filepath.Join(folder, "config.toml") + ")", folder, false, toml}
	}
	if checkout == repository {
		return []configFile{layer(folder, toml)}, nil
	}
	delete(toml.values, "hooks")
	layers := []configFile{layer(folder, toml)}
	inner, err := filepath.Rel(checkout, dir)
	if err != nil || strings.HasPrefix(inner, "..") {
		return layers, nil
	}
	mainFolder := filepath.Join(repository, inner, ".codex")
	main, err := readProject(mainFolder)
	if err != nil {
		return nil, err
	}
	if hooks, ok := main.values["hooks"]; ok {
		main.values = map[string]any{"hooks": hooks}
		layers = append(layers, layer(mainFolder, main))
	}
	return layers, nil
}

// readProject reads the configuration in a project's .codex, without the keys
// that it must not set.
func readProject(folder string) (tomlTable, error) {
	toml, _, err := readTOML(filepath.Join(folder, "config.toml"))
	for _, key := range projectIgnored {
		delete(toml.values, key)
	}
	return toml, err
}

// rootMarkers returns the names of files and directories that mark the root of
// a project.
func rootMarkers(config map[string]any) ([]string, error) {
	value, ok := config["project_root_markers"]
	if !ok {
		return []string{".git"}, nil
	}
	list, ok := value.([]any)
	var markers []string
	for _, item := range list {
		marker, isString := item.(string)
		ok = ok && isString
		markers = append(markers, marker)
	}
	if !ok {
		return nil, errors.New("project_root_markers must be an array of strings")
	}
	return markers, nil
}

// trustLevels returns the trust in directories that the user has declared.
func trustLevels(config map[string]any) (map[string]string, error) {
	value, ok := config["projects"]
	if !ok {
		return nil, nil
	}
	projects, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("projects must be a table")
	}
	levels := make(map[string]string)
	for path, value := range projects {
		project, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("projects.%s must be a table", path)
		}
		level, ok := project["trust_level"]
		if !ok {
			continue
		}
		if level != "trusted" && level != "untrusted" {
			return nil, fmt.Errorf("projects.%s.trust_level must be `trusted` or `untrusted`", path)
		}
		levels[path] = level.(string)
	}
	return levels, nil
}

// projectRoot returns the nearest directory at or above cwd that has a marker,
// or cwd.
func projectRoot(cwd string, markers []string) string {
	for dir := cwd; ; dir = filepath.Dir(dir) {
		for _, marker := range markers {
			if marker == ".git" && isRepository(dir) || marker != ".git" && exists(filepath.Join(dir, marker)) {
				return dir
			}
		}
		if dir == filepath.Dir(dir) {
			return cwd
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isRepository reports whether a directory is the top of a git repository or of
// a linked worktree. A .git directory without HEAD is not one.
func isRepository(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, ".git"))
	return err == nil && (!info.IsDir() || exists(filepath.Join(dir, ".git", "HEAD")))
}

// repositoryRoot returns the top of the worktree that contains cwd, and that of
// the repository's main worktree. Both are empty outside of a repository.
func repositoryRoot(cwd string) (checkout, main string) {
	for dir := cwd; ; dir = filepath.Dir(dir) {
		if isRepository(dir) {
			return dir, mainWorktree(dir)
		}
		if dir == filepath.Dir(dir) {
			return "", ""
		}
	}
}

// mainWorktree returns the main worktree of the repository to which the worktree
// belongs. The .git of a linked worktree is a file that names a directory in
// .git/worktrees of the main one.
func mainWorktree(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, ".git"))
	if err != nil {
		return dir // the .git is a directory
	}
	path, ok := strings.CutPrefix(string(b), "gitdir:")
	path = strings.TrimSpace(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	common := filepath.Dir(filepath.Dir(path))
	if !ok || filepath.Base(filepath.Dir(path)) != "worktrees" || filepath.Base(common) != ".git" {
		return dir
	}
	return filepath.Dir(common)
}
