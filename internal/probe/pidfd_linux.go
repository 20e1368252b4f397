package probe

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// TryPidfd kills a child through a descriptor of its process and waits for its
// end on it.
func TryPidfd(ctx context.Context) error {
	cmd := command(ctx, "wait")
	if _, err := cmd.StdoutPipe(); err != nil { // its end would end the child
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return failed(err, "pidfd_open")
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return failed(err, "pidfd_send_signal")
	}
	if err := poll(ctx, fd); err != nil {
		return failed(err, "wait for the end of a process")
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return failed(err, "waitid(P_PIDFD)")
	}
	ended = true
	_ = cmd.Wait() // reports the signal
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return failed(errNoEffect, "pidfd_send_signal")
	}
	return nil
}

// poll waits until a descriptor is readable or ctx ends.
func poll(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 1:
			return nil
		}
	}
	return context.Cause(ctx)
}

// cause returns the errno in an error, or the error.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
