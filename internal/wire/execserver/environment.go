package execserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// maxCapabilityRoots is the limit of roots per capabilityRoots/discoverV1.
const maxCapabilityRoots = 128

// environment holds the facts about the machine and the account of the server
// that clients may know. It does not change.
type environment struct {
	shell      shell
	version    string
	providerID string
	cwd        string
	home       string // empty if the account has none
	codexHome  string
	tempDir    string
	hostname   string
}

// shell is a shell that clients run commands with.
type shell struct {
	Name string `json:"name"` // zsh, bash or sh
	Path string `json:"path"`
}

// newEnvironment collects the facts. The version is that of the server.
func newEnvironment(cwd, version string) environment {
	e := environment{version: version, cwd: cwd, tempDir: os.TempDir()}
	var account string
	if u, err := user.Current(); err == nil {
		account, e.home = u.Uid, u.HomeDir
	}
	if home, err := os.UserHomeDir(); err == nil {
		e.home = home
	}
	if e.codexHome = os.Getenv("CODEX_HOME"); e.codexHome == "" && e.home != "" {
		e.codexHome = filepath.Join(e.home, ".codex")
	}
	e.hostname, _ = os.Hostname() // empty on error
	e.shell = findShell(os.Getenv("SHELL"), passwdShell("/etc/passwd", account))
	e.providerID = providerID(machineID(e.hostname), account)
	return e
}

// findShell returns the first candidate that is an executable shell known to
// clients, then bash, then sh.
func findShell(candidates ...string) shell {
	for _, path := range append(candidates, "/bin/bash", "/usr/bin/bash") {
		name := filepath.Base(path)
		if name != "zsh" && name != "bash" && name != "sh" || !filepath.IsAbs(path) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return shell{name, path}
		}
	}
	return shell{"sh", "/bin/sh"}
}

// passwdShell returns the login shell of a user id, or "" if the file has none.
func passwdShell(file, uid string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) == 7 && fields[2] == uid {
			return fields[6]
		}
	}
	return ""
}

// machineID returns an identifier of this machine.
func machineID(hostname string) string {
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := os.ReadFile(file); err == nil && len(bytes.TrimSpace(b)) > 0 {
			return string(bytes.TrimSpace(b))
		}
	}
	return hostname
}

// providerID identifies machine and account without revealing them.
func providerID(machine, account string) string {
	sum := sha256.Sum256([]byte("spool provider\x00" + machine + "\x00" + account))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// capabilities are the optional features of the dialect. Only implemented
// features are true.
type capabilities struct {
	NetworkProxyLaunch                          bool `json:"networkProxyLaunch"`
	NetworkProxyReviewDomains                   bool `json:"networkProxyReviewDomains"`
	CredentialMasking                           bool `json:"credentialMasking"`
	CredentialMaskingCustomProviders            bool `json:"credentialMaskingCustomProviders"`
	CapabilityDiscoverySandbox                  bool `json:"capabilityDiscoverySandbox"`
	FSWatchMissing                              bool `json:"fsWatchMissing"`
	CapabilityDiscoveryV2                       bool `json:"capabilityDiscoveryV2"`
	EnvironmentConfigRead                       bool `json:"environmentConfigRead"`
	HTTPHeaderEnvVars                           bool `json:"httpHeaderEnvVars"`
	SandboxedFileStreaming                      bool `json:"sandboxedFileStreaming"`
	FileWriteStreaming                          bool `json:"fileWriteStreaming"`
	ShellSnapshotV2                             bool `json:"shellSnapshotV2"`
	WindowsMXC                                  bool `json:"windowsMxc"`
	LinuxRootWritePreservesDevices              bool `json:"linuxRootWritePreservesDevices"`
	LinuxApprovedRootWritePreservesRestrictions bool `json:"linuxApprovedRootWritePreservesRestrictions"`
}

// environmentInfo is the result of environment/info, and part of the result of
// initialize.
type environmentInfo struct {
	Shell                shell        `json:"shell"`
	ExecutorVersion      string       `json:"executorVersion"`
	ProviderID           string       `json:"providerId"`
	Cwd                  string       `json:"cwd"`
	UserHomeDir          *string      `json:"userHomeDir"`
	PlatformOS           string       `json:"platformOs"`
	PrependPathDirs      []string     `json:"prependPathDirs"`
	TemporaryDirectories []string     `json:"temporaryDirectories"`
	TempDir              string       `json:"tempDir"`
	Capabilities         capabilities `json:"capabilities"`
}

// info describes the environment to a client.
func (e environment) info() environmentInfo {
	info := environmentInfo{
		Shell:                e.shell,
		ExecutorVersion:      e.version,
		ProviderID:           e.providerID,
		Cwd:                  fileuri.Format(e.cwd),
		UserHomeDir:          optionalURI(e.home),
		PlatformOS:           runtime.GOOS,
		PrependPathDirs:      []string{},
		TemporaryDirectories: []string{},
		TempDir:              fileuri.Format(e.tempDir),
		Capabilities: capabilities{
			FSWatchMissing:        runtime.GOOS == "linux",
			CapabilityDiscoveryV2: true,
			EnvironmentConfigRead: true,
			HTTPHeaderEnvVars:     true,
			FileWriteStreaming:    true,
		},
	}
	if runtime.GOOS == "darwin" {
		info.PlatformOS = "macos"
	}
	return info
}

// optionalURI is null for an empty path.
func optionalURI(path string) *string {
	if path == "" {
		return nil
	}
	uri := fileuri.Format(path)
	return &uri
}

// environmentMethod serves the methods about the environment and reports
// whether the method is one of them.
func environmentMethod(method string, params json.RawMessage, env environment) (result any, ok bool, err error) {
	switch method {
	case "environment/status":
		if err := decodeNone(params); err != nil {
			return nil, true, err
		}
		return map[string]string{"status": "ready"}, true, nil
	case "environment/info":
		if err := decodeNone(params); err != nil {
			return nil, true, err
		}
		return env.info(), true, nil
	case "environmentConfig/read":
		result, err = env.readConfig(params)
	case "capabilityRoots/discoverV1":
		result, err = discoverRoots(params)
	case "capabilities/discoverV2":
		result, err = discover(params)
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, true, osError(err)
	}
	return result, true, nil
}

// configLayers is a stack of configuration files; the server has none.
type configLayers struct {
	Layers              []struct{} `json:"layers"`
	CloudInsertionIndex int        `json:"cloudInsertionIndex"`
}

func (e environment) readConfig(params json.RawMessage) (any, error) {
	var p struct {
		Cwd               string     `json:"cwd"`
		ConfigPaths       [][]string `json:"configPaths"`
		RequirementsPaths [][]string `json:"requirementsPaths"`
	}
	if err := decode(params, &p, "cwd", "configPaths", "requirementsPaths"); err != nil {
		return nil, err
	}
	if _, err := fileuri.Parse(p.Cwd); err != nil {
		return nil, err
	}
	empty := configLayers{Layers: []struct{}{}}
	return struct {
		UserHomeDir  *string      `json:"userHomeDir"`
		CodexHomeDir *string      `json:"codexHomeDir"`
		Hostname     string       `json:"hostname"`
		Config       configLayers `json:"config"`
		Requirements configLayers `json:"requirements"`
	}{optionalURI(e.home), optionalURI(e.codexHome), e.hostname, empty, empty}, nil
}

// capabilityRoot is the result of capabilityRoots/discoverV1 for one root.
type capabilityRoot struct {
	ID                 string            `json:"id"`
	Path               string            `json:"path"`
	Plugin             *struct{}         `json:"plugin"`
	Skills             []capabilitySkill `json:"skills"`
	NamespaceManifests []struct{}        `json:"namespaceManifests"`
	Warnings           []string          `json:"warnings"`
	Error              *string           `json:"error"`
}

type capabilitySkill struct {
	Instructions capabilityFile `json:"instructions"`
	Metadata     *struct{}      `json:"metadata"`
}

type capabilityFile struct {
	Path     string `json:"path"`
	Contents string `json:"contents"`
}

// skillWalk bounds the search for skills in a root.
var skillWalk = walkOptions{
	MaxDepth: 6, MaxDirectories: 2000, MaxEntries: 20_000,
	FollowDirectorySymlinks: true, PruneHiddenDirectories: true,
}

const maxSkillFile = 1 << 20 // bytes of one SKILL.md

func discoverRoots(params json.RawMessage) (any, error) {
	var p struct {
		Roots []struct {
			ID      string          `json:"id"`
			Path    string          `json:"path"`
			Sandbox json.RawMessage `json:"sandbox"`
		} `json:"roots"`
	}
	if err := decode(params, &p, "roots"); err != nil {
		return nil, err
	}
	if len(p.Roots) > maxCapabilityRoots {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "at most %d capability roots may be discovered at once", maxCapabilityRoots)
	}
	roots := make([]capabilityRoot, 0, len(p.Roots))
	for _, r := range p.Roots {
		if err := checkFileSandbox(r.Sandbox); err != nil {
			return nil, err
		}
		path, err := fileuri.Parse(r.Path)
		if err != nil {
			return nil, err
		}
		roots = append(roots, discoverRoot(r.ID, path))
	}
	return map[string]any{"roots": roots}, nil
}

// discoverRoot searches a root for skills. It does not read plugins and warns
// about them.
func discoverRoot(id, path string) capabilityRoot {
	uri := fileuri.Format(path)
	root := capabilityRoot{ID: id, Path: uri, Skills: []capabilitySkill{}, NamespaceManifests: []struct{}{}, Warnings: []string{}}
	fail := func(format string, args ...any) capabilityRoot {
		text := fmt.Sprintf(format, args...)
		root.Error = &text
		return root
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fail("failed to inspect capability root %s: %s", uri, osMessage(err))
	case !info.IsDir():
		return fail("capability root %s is not a directory", uri)
	}
	tree, err := walkTree(context.Background(), path, skillWalk)
	if err != nil {
		return fail("failed to read capability root %s: %s", uri, osMessage(err))
	}
	if tree.Truncated {
		root.Warnings = append(root.Warnings, "capability root "+uri+" is too large to be searched as a whole")
	}
	for _, e := range tree.Entries {
		if e.Kind != "file" || !strings.HasSuffix(e.Path, "/SKILL.md") {
			continue
		}
		contents, err := readSkill(e.Path)
		if err != nil {
			root.Warnings = append(root.Warnings, fmt.Sprintf("failed to read skill %s: %s", e.Path, osMessage(err)))
			continue
		}
		root.Skills = append(root.Skills, capabilitySkill{Instructions: capabilityFile{e.Path, contents}})
	}
	for _, dir := range []string{".codex-plugin", ".claude-plugin", ".cursor-plugin"} {
		if _, err := os.Stat(filepath.Join(path, dir, "plugin.json")); err == nil {
			root.Warnings = append(root.Warnings, "the plugin manifest "+uri+"/"+dir+"/plugin.json is not read by this server")
		}
	}
	return root
}

func readSkill(uri string) (string, error) {
	path, err := fileuri.Parse(uri)
	if err != nil {
		return "", err
	}
	file, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := readAtMost(context.Background(), file, 0, maxSkillFile)
	return string(b), err
}

// discover returns empty lists: the server has no plugins and no skills of its
// own.
func discover(params json.RawMessage) (any, error) {
	var p struct {
		Cwd     string          `json:"cwd"`
		Sandbox json.RawMessage `json:"sandbox"`
	}
	if err := decode(params, &p, "cwd"); err != nil {
		return nil, err
	}
	if err := checkFileSandbox(p.Sandbox); err != nil {
		return nil, err
	}
	if _, err := fileuri.Parse(p.Cwd); err != nil {
		return nil, err
	}
	return struct {
		Plugins  []struct{} `json:"plugins"`
		Skills   []struct{} `json:"skills"`
		Warnings []string   `json:"warnings"`
	}{[]struct{}{}, []struct{}{}, []string{}}, nil
}
