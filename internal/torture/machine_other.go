//go:build !linux

package torture

import (
	"errors"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func workers(string) (map[uint32][]int, error) { return nil, nil }

func workerOf(int, string) (uint32, bool) { return 0, false }

func keeperProcesses(string) []int { return nil }

func resident(int) int64 { return 0 }

func mountDisk(string, int64) (func() error, error) {
	return nil, errors.New("mount a disk: supported only on Linux")
}

func fillDisk(string) error { return errors.New("fill disk: supported only on Linux") }
