// Package s3test runs a real S3-compatible store for tests: versitygw over a directory.
package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/testcache"
	"github.com/spool-run/spool/internal/tether"
)

// Version is the version of versitygw.
const Version = "v1.8.0"

// Cached builds versitygw into the user's cache directory, unless it is there, and
// returns its path.
func Cached() (string, error) {
	dir, err := testcache.Dir("versitygw-" + Version)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "versitygw")
	return program, testcache.Install{Fill: build, Complete: complete, Tries: testcache.Downloads}.Into(dir)
}

func build(ctx context.Context, dir string) error {
	_, err := testcache.Run(ctx, "env", "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "go", "install", "-ldflags=-s -w", "github.com/versity/versitygw/cmd/versitygw@"+Version)
	return err
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "versitygw"))
	return err == nil
}

// Store is a running store with one bucket.
type Store struct {
	URL    string // of an archive in the bucket, with the endpoint
	Key    string // AWS_ACCESS_KEY_ID
	Secret string // AWS_SECRET_ACCESS_KEY
}

// bucket is the name of the bucket.
const bucket = "logs"

// Start starts a store that ends with the test, and puts the credentials into the
// environment of the test. Without versitygw it skips the test, and fails it in CI.
func Start(t *testing.T) *Store {
	t.Helper()
	program, err := Cached()
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	root, meta := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(root, bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &Store{Key: "spooltest", Secret: "spooltest-secret"}
	for try := 0; ; try++ {
		addr := freeAddress(t)
		said, ok := s.serve(t, program, addr, root, meta)
		if ok {
			s.URL = fmt.Sprintf("s3://%s/archive?endpoint=http://%s", bucket, addr)
			break
		}
		if try == 5 {
			t.Fatalf("versitygw does not listen: %s", said)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
	return s
}

// freeAddress returns an address at which nobody listens, which another process may take
// meanwhile.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts the program and waits until it listens or has ended.
func (s *Store) serve(t *testing.T, program, addr, root, meta string) (said string, ok bool) {
	t.Helper()
	cmd := exec.Command(program, "--port", addr, "--health", "/alive", "--quiet", "posix", "--sidecar", meta, root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.Key, "ROOT_SECRET_KEY="+s.Secret)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = tether.Attr(syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	listening := false
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	polltest.Until(t, "versitygw listening", func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		resp, err := client.Get("http://" + addr + "/alive")
		if err == nil {
			listening = resp.StatusCode == http.StatusOK
			_ = resp.Body.Close()
		}
		return listening
	})
	select {
	case <-ended: // another process has the address
		return out.String(), false
	default:
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return "", true
}
