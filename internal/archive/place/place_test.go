package place_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive/place"
)

// someCluster is a cluster to which the machine belongs.
func someCluster() (string, *tls.Config, error) { return "tls://127.0.0.1:1", new(tls.Config), nil }

// A URL is refused that makes no sense, and one with credentials, which are not
// repeated.
func TestPlacesThatAreRefused(t *testing.T) {
	open := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(open, []byte("[default]\naws_access_key_id=k\naws_secret_access_key=hush\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for url, o := range map[string]place.Options{
		"":                                     {},
		"dir:":                                 {},
		"dir:/does/not/exist":                  {},
		"ftp://host/x":                         {},
		"s3://":                                {},
		"s3:bucket":                            {},
		"s3://key:hush@bucket/x":               {},
		"s3://bucket/%zz?endpoint=hush":        {},
		"s3://bucket?secret=hush":              {},
		"s3://bucket?endpoint=hush":            {},
		"s3://bucket?endpoint=http://u:hush@h": {},
		"s3://bucket?endpoint=ftp://h":         {},
		"s3://bucket?endpoint=http://10.0.0.1": {},
		"s3://bucket?endpoint=https://h":       {Credentials: open},
		"nats://127.0.0.1:4222":                {},
		"nats:bucket":                          {},
		"nats://u:hush@127.0.0.1:4222/b":       {},
		"nats://10.0.0.1:4222/b":               {},
		"nats://127.0.0.1:4222,10.0.0.1:2/b":   {},
		"nats://127.0.0.1:4222/b.c":            {},
		"nats://127.0.0.1:4222/b?replicas=x":   {},
		"nats://127.0.0.1:4222/b?secret=1":     {},
		"cluster:":                             {},
		"cluster:bucket":                       {Cluster: someCluster},
		"cluster:?secret=1":                    {Cluster: someCluster},
		"cluster:?max-bytes=many":              {Cluster: someCluster},
		"tls://10.0.0.1:4222/b":                {Credentials: open},
	} {
		p, err := place.Open(url, o)
		if err == nil {
			t.Errorf("%q was opened as %s", url, p)
			continue
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: the error repeats a secret: %v", url, err)
		}
	}
	if _, err := place.Open("s3://b?endpoint=http://10.0.0.1", place.Options{}); !errors.Is(err, place.ErrPlaintext) {
		t.Errorf("without TLS: %v", err)
	}
	if _, err := place.Open("x:y", place.Options{}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("no place: %v", err)
	}
}

// What is opened says where it is, without secrets.
func TestPlacesSayWhereTheyAre(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	dir := t.TempDir()
	for url, want := range map[string]string{
		dir:                                "dir:" + dir,
		"dir:" + dir:                       "dir:" + dir,
		"s3://b":                           "s3://b/",
		"s3://b/p/?region=eu-west-1":       "s3://b/p",
		"s3://b/p?endpoint=http://[::1]:9": "s3://b/p",
		"nats://[::1]:1/b?replicas=1":      "nats://[::1]:1/b",
		"tls://a:1,b:2/b?max-bytes=1000":   "tls://a:1,b:2/b",
	} {
		p, err := place.Open(url, place.Options{})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if p.String() != want {
			t.Errorf("%s is %s, want %s", url, p, want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
