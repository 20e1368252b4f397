package execserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// environment holds the facts about the machine and the account of the server
// that clients may know. It does not change.
type environment struct {
	shell      shell
	version    string
	providerID string
	cwd        string
	home       string // empty if the account has none
	codexHome  string
	system     string // directory of codex's configuration for all accounts
	tempDir    string
	tempDirs   []string // that TMPDIR names
	hostname   string
}

// shell is a shell that clients run commands with.
type shell struct {
	Name string `json:"name"` // zsh, bash or sh
	Path string `json:"path"`
}

// newEnvironment collects the facts. The version is that of the server.
func newEnvironment(cwd, version string) environment {
	e := environment{version: version, cwd: cwd, system: "/etc/codex", tempDir: os.TempDir()}
	if !filepath.IsAbs(e.tempDir) {
		e.tempDir = filepath.Join(cwd, e.tempDir)
	}
	if os.Getenv("TMPDIR") != "" {
		e.tempDirs = []string{e.tempDir}
	}
	var account string
	if u, err := user.Current(); err == nil {
		account, e.home = u.Uid, u.HomeDir
	}
	if home, err := os.UserHomeDir(); err == nil {
		e.home = home
	}
	if e.codexHome = os.Getenv("CODEX_HOME"); e.codexHome == "" && e.home != "" {
		e.codexHome = filepath.Join(e.home, ".codex")
	} else if path, err := filepath.EvalSymlinks(e.codexHome); err == nil {
		e.codexHome = path
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
		TemporaryDirectories: uris(e.tempDirs),
		TempDir:              fileuri.Format(e.tempDir),
		Capabilities: capabilities{
			NetworkProxyLaunch:         runtime.GOOS == "linux",
			CapabilityDiscoverySandbox: runtime.GOOS == "linux",
			FSWatchMissing:             runtime.GOOS == "linux",
			CapabilityDiscoveryV2:      true,
			EnvironmentConfigRead:      true,
			HTTPHeaderEnvVars:          true,
			SandboxedFileStreaming:     runtime.GOOS == "linux",
			FileWriteStreaming:         true,
			ShellSnapshotV2:            true,
		},
	}
	if runtime.GOOS == "darwin" {
		info.PlatformOS = "macos"
	}
	return info
}

func uris(paths []string) []string {
	list := make([]string, len(paths))
	for i, path := range paths {
		list[i] = fileuri.Format(path)
	}
	return list
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
		result, err = env.discover(params)
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, true, osError(err)
	}
	return result, true, nil
}
