// Command resume shows that the death of a reader costs nothing. It has a
// second process start a run and read it, kills that process with SIGKILL in
// the middle, and goes on reading after the last event that it saw. Nothing is
// missing, nothing comes twice, and at the end nothing is left running.
//
//	go run ./resume
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
)

const (
	lines  = 40
	script = `for i in $(seq 40); do echo line $i; sleep 0.05; done`
)

func main() {
	local.ChildMain()
	ctx := context.Background()
	var err error
	if len(os.Args) == 2 && os.Args[1] == "reader" {
		err = read(ctx)
	} else {
		err = demonstrate(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// read is the process that is killed: it starts a run and prints, for every event
// that it saw, the run's id, the seq of the event and the numbers of its lines.
func read(ctx context.Context) error {
	backend, err := local.Open("", local.Options{})
	if err != nil {
		return err
	}
	run, err := spool.Start(ctx, backend, spool.Spec{
		Argv:      []string{"/bin/sh", "-c", script},
		EnvPolicy: &spool.EnvPolicy{Inherit: "all"},
	})
	if err != nil {
		return err
	}
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			return err
		}
		fmt.Println(run.ID(), e.Seq, strings.Join(numbers(string(e.Bytes)), " "))
	}
	return nil
}

func demonstrate(ctx context.Context) error {
	id, last, seen, err := killReader()
	if err != nil {
		return err
	}
	fmt.Printf("the reader was killed after event %d\n", last)

	backend, err := local.Open("", local.Options{})
	if err != nil {
		return err
	}
	defer backend.Close()
	run := spool.Attach(backend, id)
	for e, err := range run.Events(ctx, last) {
		if err != nil {
			return err
		}
		if e.Seq != last+1 {
			return fmt.Errorf("event %d came after event %d", e.Seq, last)
		}
		last = e.Seq
		seen = append(seen, numbers(string(e.Bytes))...)
	}
	for i := range lines {
		if len(seen) != lines || seen[i] != fmt.Sprint(i+1) {
			return fmt.Errorf("the lines are not complete: %q", seen)
		}
	}
	outcome, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("all %d lines were read once; the command %s\n", len(seen), outcome)

	running := 0
	for info, err := range backend.List(ctx, spool.Filter{}) {
		if err != nil {
			return err
		}
		if info.State != spool.StateClosed {
			running++
		}
	}
	fmt.Println("runs still running:", running)
	return nil
}

// killReader starts the other process and kills it once it has seen a few
// events. It returns the run, the last event and the lines in them.
func killReader() (id spool.RunID, last spool.Seq, seen []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, nil, err
	}
	cmd := exec.Command(self, "reader")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	in := bufio.NewScanner(out)
	for last < 5 && in.Scan() {
		if _, err := fmt.Sscan(in.Text(), &id, &last); err != nil {
			return "", 0, nil, fmt.Errorf("the reader said %q: %w", in.Text(), err)
		}
		seen = append(seen, strings.Fields(in.Text())[2:]...)
	}
	if err := cmd.Process.Kill(); err != nil {
		return "", 0, nil, err
	}
	_ = cmd.Wait() // it was killed
	return id, last, seen, nil
}

// numbers returns the numbers of the lines in some output. What is written in
// quick succession may be one event.
func numbers(output string) []string {
	return strings.Fields(strings.ReplaceAll(output, "line ", ""))
}
