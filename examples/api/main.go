// Command api serves the runs of a directory over HTTP, with an authentication of
// its own: a password for each user.
//
//	api 127.0.0.1:8080 &
//	curl -u alice:wonderland -H 'Content-Type: application/json' http://127.0.0.1:8080/v1/runs -d '{"argv":["/bin/date"]}'
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/serve"
)

func main() {
	local.ChildMain()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// passwords are those of the users. A real program keeps digests of them elsewhere.
var passwords = map[string]string{"alice": "wonderland", "bob": "builder"}

// whoIs says who sends a request. Each user sees their own runs.
func whoIs(r *http.Request) (serve.Subject, error) {
	name, password, _ := r.BasicAuth()
	want, known := passwords[name]
	if subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 || !known {
		return serve.Subject{}, errors.New("wrong name or password")
	}
	return serve.Subject{Name: name}, nil
}

func run() (err error) {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	dir, err := local.DefaultDir()
	if err != nil {
		return err
	}
	backend, err := local.Open(dir, local.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	api, err := serve.New(backend, serve.Options{Authenticate: whoIs})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() {
		api.Close(time.Second) // the clients of streams come back later
		_ = server.Close()
	})
	fmt.Printf("http://%s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
