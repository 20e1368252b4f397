package kernel

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/process"
)

// allowedNames are inherited by every kernel, unless its spec has a policy of
// its own: what programs need to find their way, and nothing that opens doors.
var allowedNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
	"TMPDIR", "TEMP", "TMP", "XDG_*", "DISPLAY", "WAYLAND_DISPLAY",
	"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_*", "PYTHON*", "PIP_*", "UV_*",
	"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PKG_CONFIG_PATH",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"CUDA_*", "NVIDIA_*", "ROCR_*", "HIP_*", "OMP_*", "OPENBLAS_*", "MKL_*", "NUMEXPR_*", "BLIS_*",
	"MPLBACKEND", "MPLCONFIGDIR", "SOURCE_DATE_EPOCH",
}

// secretNames are not inherited although they look allowed.
var secretNames = []string{"*KEY*", "*SECRET*", "*TOKEN*", "*PASSW*", "*CREDENTIAL*", "*AUTH*", "*COOKIE*", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX*"}

// environ makes the environment of a kernel. A policy of the spec decides
// alone; without one the allow-list does, and the spec's variables come on top.
func environ(spec *spool.Spec, inherited, allow []string) ([]string, error) {
	policy := spec.EnvPolicy
	if policy == nil {
		var kept []string
		for _, v := range inherited {
			name, _, _ := strings.Cut(v, "=")
			if matches(allow, name) || matches(allowedNames, name) && !matches(secretNames, name) {
				kept = append(kept, v)
			}
		}
		inherited = kept
		policy = &spool.EnvPolicy{Inherit: spool.InheritAll, IgnoreDefaultExcludes: true}
	}
	return process.Environ(policy, inherited, spec.Env)
}

func matches(patterns []string, name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := filepath.Match(strings.ToUpper(p), name)
		return err == nil && ok
	})
}

// getenv returns the value of a variable in a list.
func getenv(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// setenv returns the list with a variable changed.
func setenv(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			out = append(out, v)
		}
	}
	return append(out, name+"="+value)
}
