package environ

// KernelNames are the variables that every kernel inherits, unless its spec has a
// policy of its own: what programs need to work, and no credentials.
var KernelNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
	"TMPDIR", "TEMP", "TMP", "XDG_*", "DISPLAY", "WAYLAND_DISPLAY",
	"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_*", "PYTHON*", "PIP_*", "UV_*",
	"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PKG_CONFIG_PATH",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"CUDA_*", "NVIDIA_*", "ROCR_*", "HIP_*", "OMP_*", "OPENBLAS_*", "MKL_*", "NUMEXPR_*", "BLIS_*",
	"MPLBACKEND", "MPLCONFIGDIR", "SOURCE_DATE_EPOCH",
}

// KernelSecrets are not inherited even where KernelNames match.
var KernelSecrets = []string{"*KEY*", "*SECRET*", "*TOKEN*", "*PASSW*", "*CREDENTIAL*", "*AUTH*", "*COOKIE*", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX*"}

// KernelInherits reports whether a kernel whose spec has no policy inherits a
// variable of that name.
func KernelInherits(name string) bool {
	return Match(KernelNames, name) && !Match(KernelSecrets, name)
}
