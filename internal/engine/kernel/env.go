package kernel

import (
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/environ"
)

// allowedNames are inherited by every kernel, unless its spec has a policy of
// its own: what programs need to work, and no credentials.
var allowedNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
	"TMPDIR", "TEMP", "TMP", "XDG_*", "DISPLAY", "WAYLAND_DISPLAY",
	"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_*", "PYTHON*", "PIP_*", "UV_*",
	"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PKG_CONFIG_PATH",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"CUDA_*", "NVIDIA_*", "ROCR_*", "HIP_*", "OMP_*", "OPENBLAS_*", "MKL_*", "NUMEXPR_*", "BLIS_*",
	"MPLBACKEND", "MPLCONFIGDIR", "SOURCE_DATE_EPOCH",
}

// secretNames are not inherited even where allowedNames match.
var secretNames = []string{"*KEY*", "*SECRET*", "*TOKEN*", "*PASSW*", "*CREDENTIAL*", "*AUTH*", "*COOKIE*", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX*"}

// environment makes the environment of a kernel. A policy in the spec decides
// alone; without one the allow-list decides. The spec's variables come on top.
func environment(spec *spool.Spec, inherited, allow []string) ([]string, error) {
	policy := spec.EnvPolicy
	if policy == nil {
		inherited = environ.Filter(inherited, func(name string) bool {
			return environ.Match(allow, name) || environ.Match(allowedNames, name) && !environ.Match(secretNames, name)
		})
		policy = &spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}
	}
	return environ.Make(policy, inherited, spec.Env)
}

// Inherit sets, in a spec without a policy for its environment, the variables
// that its kernel inherits from this environment: for a backend whose kernels
// are started by another process.
func Inherit(spec *spool.Spec, inherited []string) error {
	if spec.EnvPolicy != nil {
		return nil
	}
	cfg, err := parseConfig(spec.Config)
	if err != nil {
		return &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	env, err := environment(spec, inherited, cfg.EnvAllow)
	if err != nil {
		return &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	spec.Env = make(map[string]string, len(env))
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		spec.Env[name] = value
	}
	return nil
}
