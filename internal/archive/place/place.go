// Package place opens the place of an archive by its URL.
package place

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/archive/dir"
	"github.com/spool-run/spool/internal/archive/s3"
	"github.com/spool-run/spool/internal/privatedir"
)

// Options say how a place is opened.
type Options struct {
	// Credentials is a file with credentials in the format of AWS. Empty means
	// the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
	// AWS_SESSION_TOKEN), ~/.aws/credentials, or the role of the machine.
	Credentials string
	// Plaintext allows requests to other machines without TLS.
	Plaintext bool
}

// ErrPlaintext means that a store on another machine would be used without TLS.
var ErrPlaintext = errors.New("the network would read and could change what is archived")

// The keys of the query of a URL.
const (
	keyEndpoint = "endpoint"
	keyRegion   = "region"
	keyProfile  = "profile"
)

// Open opens a place: dir:PATH, or s3://BUCKET/PREFIX with the query keys endpoint,
// region and profile. A URL that makes no sense is [spool.ErrInvalid]. It never has
// credentials, and no error repeats any.
func Open(text string, o Options) (archive.Objects, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	switch {
	case filepath.IsAbs(text):
		return dir.Open(filepath.Clean(text))
	case ok && scheme == "dir":
		path, err := filepath.Abs(rest)
		if err != nil || rest == "" {
			return nil, fmt.Errorf("%w: an archive of the form dir: needs a path", spool.ErrInvalid)
		}
		return dir.Open(path)
	case ok && scheme == "s3":
		return openS3(text, o)
	}
	return nil, fmt.Errorf("%w: the archive is none of dir:PATH and s3://BUCKET/PREFIX", spool.ErrInvalid)
}

func openS3(text string, o Options) (archive.Objects, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil: // the error has the text
		return nil, fmt.Errorf("%w: the URL of the archive does not parse", spool.ErrInvalid)
	case u.User != nil:
		return nil, fmt.Errorf("%w: the URL of the archive must not have credentials: they would be seen by all who see the command", spool.ErrInvalid)
	case u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("%w: the URL of the archive names no bucket: s3://BUCKET/PREFIX", spool.ErrInvalid)
	}
	for key := range u.Query() {
		if key != keyEndpoint && key != keyRegion && key != keyProfile {
			return nil, fmt.Errorf("%w: the URL of the archive has the unknown key %.40q: use endpoint, region and profile", spool.ErrInvalid, key)
		}
	}
	b := s3.Options{
		Endpoint: "s3.amazonaws.com", Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"),
		Region:  first(u.Query().Get(keyRegion), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Profile: first(u.Query().Get(keyProfile), os.Getenv("AWS_PROFILE")), CredentialsFile: o.Credentials,
	}
	if at := first(u.Query().Get(keyEndpoint), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")); at != "" {
		e, err := url.Parse(at)
		if err != nil || e.Host == "" || e.Scheme != "https" && e.Scheme != "http" || strings.Trim(e.Path, "/") != "" || e.User != nil {
			return nil, fmt.Errorf("%w: the endpoint of the archive is none of https://HOST and http://HOST", spool.ErrInvalid)
		}
		b.Endpoint, b.Insecure, b.Region = e.Host, e.Scheme == "http", first(b.Region, "us-east-1")
		if b.Insecure && !o.Plaintext && !isLoopback(e.Hostname()) {
			return nil, fmt.Errorf("the archive at %s: %w", e.Host, ErrPlaintext)
		}
	}
	if o.Credentials != "" {
		fi, err := os.Stat(o.Credentials)
		if err == nil {
			err = privatedir.CheckSecret(o.Credentials, fi)
		}
		if err != nil {
			return nil, fmt.Errorf("read the credentials of the archive: %w", err)
		}
	}
	return s3.Open(b)
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
