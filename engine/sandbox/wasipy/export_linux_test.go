package wasipy

import "os/exec"

// Role makes the test binary a worker.
const Role = "sandbox-worker-role"

// SelfWorker is how tests start their workers.
func SelfWorker(args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", append([]string{Role}, args...)...)
}
