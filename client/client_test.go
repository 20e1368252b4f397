package client_test

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Code(servertest.Main(m)))
}

// dial connects. On a busy machine a server may need more time for its start than
// the defaults allow.
func dial(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	o.Reconnect, o.Dial = cmp.Or(o.Reconnect, 5*time.Minute), cmp.Or(o.Dial, time.Minute)
	c, err := client.Dial(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestBackend(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) spool.Backend {
		return dial(t, servertest.Start(t, t.TempDir()).URL, client.Options{})
	})
}
