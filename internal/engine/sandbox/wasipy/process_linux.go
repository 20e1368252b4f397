package wasipy

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/tail"
)

// newCell returns the cell of workers whose compiled code is in a directory.
func newCell(cfg Config, compiled string) *isolate.Cell {
	if cfg.Worker == nil {
		return nil
	}
	return isolate.NewCell(cellOptions(cfg, compiled))
}

func cellOptions(cfg Config, compiled string) isolate.CellOptions {
	return isolate.CellOptions{Name: "worker", Readable: []string{compiled}, Attempt: func(arg string) (string, []string) {
		cmd := cfg.Worker(verbTry, arg)
		return cmd.Path, cmd.Args
	}}
}

// process is a process in a cell.
type process struct {
	*os.Process
	stderr *tail.Pipe
	state  *os.ProcessState // once it was waited for
}

// startProcess starts a command in a cell, with nothing of this process but files,
// which become its descriptors from 3 on.
func startProcess(cell *isolate.Cell, cmd *exec.Cmd, files ...*os.File) (*process, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	stderr, in, err := tail.NewPipe(maxErrorText)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	quiet(cmd)
	attr := &syscall.ProcAttr{Dir: cmd.Dir, Env: cmd.Env, Sys: cmd.SysProcAttr, Files: []uintptr{null.Fd(), null.Fd(), in.Fd()}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, err := cell.Fork(cmd.Path, cmd.Args, attr)
	if err != nil {
		return nil, err
	}
	p := &process{stderr: stderr}
	p.Process, _ = os.FindProcess(pid) // never fails
	return p, nil
}

func (p *process) kill() { _ = p.Kill() } // or it has ended

// wait waits for the end of the process.
func (p *process) wait() error {
	var err error
	p.state, err = p.Wait()
	p.stderr.Wait()
	if err != nil {
		return fmt.Errorf("wait for a process: %w", err)
	}
	if !p.state.Success() {
		return &exec.ExitError{ProcessState: p.state}
	}
	return nil
}
