package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/wire/execserver"
)

// demoScript counts slowly enough to watch. It ends when it has read a line, which
// the client sends after the cut.
const demoScript = `i=1; while [ $i -le 12 ]; do echo "line $i of 12"; [ $i = 8 ] && echo "a word on stderr" >&2; i=$((i+1)); sleep 0.1; done; read -r _; exit 7`

// demoCut is in the event after which the demo cuts its own connection.
const demoCut = "line 5 of 12"

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Watch a run survive a cut connection",
		Long: `Demo starts a server and a client on this machine, runs a command through them,
cuts the connection in the middle, and shows that the reader receives every event
once, in order, and that the log reads the same afterwards.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context()) },
	}
}

func (a *app) say(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }

func (a *app) demo(ctx context.Context) (err error) {
	a.server = "" // the demo runs on this machine
	backend, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	server := execserver.New(execserver.Options{Backend: backend, Version: version().Version})
	defer server.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	web := newHTTPServer(server, nil)
	defer web.Close()
	go func() { _ = web.Serve(ln) }() // ends with Close
	wire, err := netcut.NewProxy(ln.Addr().String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wire.Close()) }()
	c, err := client.Dial(ctx, "ws://"+wire.Addr(), client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	spec := spool.Spec{
		Name: "demo", Argv: []string{"/bin/sh", "-c", demoScript}, Stdin: true, EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
	}
	if err := lease(ctx, backend, &spec); err != nil { // a demo that is interrupted leaves no live run
		return err
	}
	run, err := spool.Start(ctx, c, spec)
	if err != nil {
		return err
	}
	a.say("A server listens on %s; a client started run %s through it:\n", ln.Addr(), run.ID())
	live, err := a.watch(ctx, run, func(e spool.Event) error {
		a.say("%4d  %-7s %s", e.Seq, e.Kind, describe(e))
		if !bytes.Contains(e.Bytes, []byte(demoCut)) {
			return nil
		}
		a.say("      --- connection cut; the command keeps running ---")
		wire.Cut()
		a.say("      --- the client reconnects and continues after event %d ---", e.Seq)
		_, err := io.WriteString(run.Stdin(ctx), "end\n")
		return err
	})
	if err != nil {
		return err
	}
	again, err := a.watch(ctx, spool.Attach(backend, run.ID()), func(spool.Event) error { return nil })
	if err != nil {
		return err
	}
	if !bytes.Equal(live, again) {
		return fmt.Errorf("the log of run %s differs from what the reader saw live", run.ID())
	}
	a.say("\nEvery event arrived once and in order over %d connections, and the log reads the\nsame from the start. The log stays; try:\n", wire.Count())
	self := typedName()
	a.say("  %s logs demo", self)
	a.say("  %s logs --json demo", self)
	a.say("  %s run --name hello -- sh -c 'echo hi; sleep 5; echo bye'", self)
	a.say("  %s --help", self)
	return nil
}

// typedName returns what a person types to start this program: its name, if that is
// the program in PATH, or else the path that was typed.
func typedName() string {
	typed := os.Args[0]
	found, err := exec.LookPath(filepath.Base(typed))
	if err != nil {
		return typed
	}
	self, err := os.Stat(typed)
	inPath, foundErr := os.Stat(found)
	if err == nil && foundErr == nil && os.SameFile(self, inPath) {
		return filepath.Base(typed)
	}
	return typed
}

// watch follows a run to its end and returns its events as JSON lines.
func (a *app) watch(ctx context.Context, run *spool.Run, each func(spool.Event) error) ([]byte, error) {
	var lines []byte
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if err := each(e); err != nil {
			return nil, err
		}
		lines = append(e.AppendJSON(lines), '\n')
	}
	return lines, nil
}

// describe returns a short description of an event.
func describe(e spool.Event) string {
	if o, ok := e.Outcome(); ok {
		return o.String()
	}
	return string(bytes.TrimSpace(e.Bytes))
}
