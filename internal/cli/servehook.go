package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/webhook"
)

// hookOptions are the flags about messages to another server.
type hookOptions struct {
	url    string
	secret string      // a file
	typed  func() bool // reports whether the URL is on the command line
}

func (o *hookOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "notify", "", "`URL` that gets a message when a run asks something or ends; see above (default $SPOOL_NOTIFY)")
	o.typed = func() bool { return flags.Changed("notify") }
	flags.StringVar(&o.secret, "notify-secret", "", "`file` with the secret that signs the messages of --notify")
}

// check checks the flags.
func (o *hookOptions) check() error {
	if o.url == "" {
		if o.secret != "" {
			return usageErrorf("--notify-secret needs --notify")
		}
		return nil
	}
	u, err := url.Parse(o.url)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return usageErrorf("--notify: use a URL such as https://ntfy.sh/my-topic")
	}
	if u.User != nil && o.typed() {
		return usageErrorf("--notify: the URL must not have credentials here: they would be seen by all who see the command; put it into the variable SPOOL_NOTIFY")
	}
	return nil
}

// start begins to send messages, if somebody wants them.
func (o *hookOptions) start(ctx context.Context, runs spool.Backend, page string, log *slog.Logger) (io.Closer, error) {
	if o.url == "" {
		return io.NopCloser(nil), nil
	}
	var secret []byte
	if o.secret != "" {
		text, err := readToken(o.secret)
		if err != nil {
			return nil, fmt.Errorf("--notify-secret: %w", err)
		}
		secret = []byte(text)
	}
	s, err := webhook.Start(ctx, runs, webhook.Options{URL: o.url, Secret: secret, Page: page, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("--notify: %w", err)
	}
	return s, nil
}
