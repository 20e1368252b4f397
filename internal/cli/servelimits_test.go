package cli

import (
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestServeLimits checks that every limit of the HTTP API has a flag, but those that only
// tests change, and that no flag takes zero.
func TestServeLimits(t *testing.T) {
	var o serveOptions
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addLimits(flags)
	if err := o.checkLimits(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	inner := map[string]bool{"SlowGrace": true, "CursorEvery": true, "RetryMs": true, "CheckEvery": true, "VisitFor": true}
	all := reflect.ValueOf(o.http)
	for i := range all.NumField() {
		if name := all.Type().Field(i).Name; all.Field(i).IsZero() != inner[name] {
			t.Errorf("the limit %s has the default %v", name, all.Field(i))
		}
	}
	for _, l := range o.limits() {
		value := reflect.ValueOf(l.value).Elem()
		kept := value.Int()
		value.SetInt(0)
		if err := o.checkLimits(); err == nil {
			t.Errorf("--%s takes zero", l.name)
		}
		value.SetInt(kept)
	}
	if err := flags.Parse([]string{"--max-headers", "9000", "--max-blob=5"}); err != nil || o.http.Headers != 9000 || o.http.Blob != 5 {
		t.Errorf("%+v, %v", o.http, err)
	}
	s := newHTTPServer(nil, nil)
	httpapi.New(httpapi.Options{Limits: o.http}).Configure(s)
	if s.MaxHeaderBytes != 9000 {
		t.Errorf("the server takes headers of %d bytes", s.MaxHeaderBytes)
	}
}
