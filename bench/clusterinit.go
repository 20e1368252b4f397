package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// natsPackages begin the names of the packages of NATS.
const natsPackages = "github.com/nats-io/"

// clusterInit measures what NATS, which is in every program, adds to the start of a
// command that does not use it: the time that the initialisation of its packages takes,
// and of those that only they need.
func (b *bench) clusterInit(ctx context.Context) error {
	only, err := onlyNATS(ctx)
	if err != nil {
		return err
	}
	for range b.pick(50, 10) {
		cmd := exec.CommandContext(ctx, b.spool, "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace bytes.Buffer
		cmd.Stderr = &trace
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("spool --version: %w: %s", err, trace.Bytes())
		}
		took, found, err := initTime(trace.String(), only)
		if err != nil {
			return err
		}
		if found == 0 {
			return errors.New("the trace of spool --version has no package of NATS")
		}
		b.addTime(subjectSpool, "cluster.init", took)
	}
	return nil
}

// traced is a line of GODEBUG=inittrace=1.
var traced = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock,`)

// initTime returns how long the initialisation of packages took, and how many of them
// have one.
func initTime(trace string, packages map[string]bool) (took time.Duration, found int, err error) {
	for _, m := range traced.FindAllStringSubmatch(trace, -1) {
		name, err := url.PathUnescape(m[1]) // nats%2ego
		if err != nil {
			return 0, 0, fmt.Errorf("trace of an initialisation: %w", err)
		}
		if !packages[name] {
			continue
		}
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("trace of the initialisation of %s: %w", name, err)
		}
		took += time.Duration(ms * float64(time.Millisecond))
		found++
	}
	return took, found, nil
}

// onlyNATS returns the packages of the program that it would not have without NATS.
func onlyNATS(ctx context.Context) (map[string]bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Imports,ImportMap", "./cmd/spool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is built
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of the program: %w: %s", err, stderr.Bytes())
	}
	imports := make(map[string][]string)
	last := "" // what imports all others comes last
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			ImportMap  map[string]string // of names to packages that are vendored
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		for i, name := range p.Imports {
			if to, ok := p.ImportMap[name]; ok {
				p.Imports[i] = to
			}
		}
		imports[p.ImportPath], last = p.Imports, p.ImportPath
	}
	needed := make(map[string]bool)
	var need func(string)
	need = func(name string) {
		if needed[name] || strings.HasPrefix(name, natsPackages) {
			return
		}
		needed[name] = true
		for _, to := range imports[name] {
			need(to)
		}
	}
	need(last)
	only := make(map[string]bool)
	for name := range imports {
		if !needed[name] {
			only[name] = true
		}
	}
	return only, nil
}
