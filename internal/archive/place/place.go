// Package place opens the place of an archive by its URL.
package place

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/archive/dir"
	"github.com/spool-run/spool/internal/archive/natsobj"
	"github.com/spool-run/spool/internal/archive/s3"
	"github.com/spool-run/spool/internal/privatedir"
)

// Options say how a place is opened.
type Options struct {
	// Credentials is a file with credentials: for a bucket of S3 in the format of
	// AWS, for one of NATS in that of NATS. Empty means for S3 the environment
	// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN),
	// ~/.aws/credentials, or the role of the machine.
	Credentials string
	// Plaintext allows requests to other machines without TLS.
	Plaintext bool
	// Cluster returns the URLs of the servers of the store of the cluster to which this
	// machine belongs, separated by commas, and how to connect to them. Nil means that
	// it belongs to none.
	Cluster func() (servers string, config *tls.Config, err error)
}

// clusterBucket is the bucket in the store of a cluster.
const clusterBucket = "spool-archive"

// ErrPlaintext means that a store on another machine would be used without TLS.
var ErrPlaintext = errors.New("the network would read and could change what is archived")

// The keys of the query of a URL.
const (
	keyEndpoint = "endpoint"
	keyRegion   = "region"
	keyProfile  = "profile"
	keyReplicas = "replicas"
	keyMaxBytes = "max-bytes"
)

// Open opens a place: dir:PATH, s3://BUCKET/PREFIX with the query keys endpoint, region
// and profile, or nats://HOST:PORT/BUCKET and tls://HOST:PORT/BUCKET with the query keys
// replicas and max-bytes, and with several servers separated by commas, or cluster: with
// the same keys, which is the store of the cluster of this machine. A URL that makes no sense is [spool.ErrInvalid]. It never has credentials, and no error repeats any.
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
	case ok && (scheme == "nats" || scheme == "tls"):
		return openNATS(scheme, rest, o)
	case ok && scheme == "cluster":
		return openCluster(rest, o)
	}
	return nil, fmt.Errorf("%w: the archive is none of dir:PATH, s3://BUCKET/PREFIX, nats://HOST:PORT/BUCKET and cluster:", spool.ErrInvalid)
}

// openCluster opens the object store of the cluster of this machine.
func openCluster(rest string, o Options) (archive.Objects, error) {
	rest, query, _ := strings.Cut(rest, "?")
	if rest != "" || o.Credentials != "" {
		return nil, fmt.Errorf("%w: an archive of the form cluster: has no name and no credentials: it is that of the cluster", spool.ErrInvalid)
	}
	b := natsobj.Options{Bucket: clusterBucket, Name: "cluster:"}
	if err := sizes(&b, query); err != nil {
		return nil, err
	}
	if o.Cluster == nil {
		return nil, fmt.Errorf("%w: this machine belongs to no cluster", spool.ErrInvalid)
	}
	var err error
	if b.Servers, b.TLS, err = o.Cluster(); err != nil {
		return nil, err
	}
	return natsobj.Open(b), nil
}

// sizes takes what the query of a URL says about a bucket.
func sizes(b *natsobj.Options, text string) error {
	query, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("%w: the URL of the archive does not parse", spool.ErrInvalid)
	}
	for key := range query {
		n, err := strconv.ParseInt(query.Get(key), 10, 64)
		if err != nil || n <= 0 || key == keyReplicas && n > 5 {
			return fmt.Errorf("%w: the key %.40q of the URL of the archive needs a number", spool.ErrInvalid, key)
		}
		switch key {
		case keyReplicas:
			b.Replicas = int(n)
		case keyMaxBytes:
			b.MaxBytes = n
		default:
			return fmt.Errorf("%w: the URL of the archive has the unknown key %.40q: use replicas and max-bytes", spool.ErrInvalid, key)
		}
	}
	return nil
}

// openNATS opens an object store of NATS.
func openNATS(scheme, rest string, o Options) (archive.Objects, error) {
	rest, text, _ := strings.Cut(rest, "?")
	hosts, bucket, ok := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	bad := strings.ContainsFunc(bucket, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
	switch {
	case strings.Contains(hosts, "@"):
		return nil, fmt.Errorf("%w: the URL of the archive must not have credentials: they would be seen by all who see the command", spool.ErrInvalid)
	case !ok || hosts == "" || bucket == "" || bad || !strings.HasPrefix(rest, "//"):
		return nil, fmt.Errorf("%w: the URL of the archive names no bucket of letters, digits, - and _: nats://HOST:PORT/BUCKET", spool.ErrInvalid)
	}
	b := natsobj.Options{Bucket: bucket, Creds: o.Credentials, Name: scheme + "://" + hosts + "/" + bucket}
	if err := sizes(&b, text); err != nil {
		return nil, err
	}
	var servers []string
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse(scheme + "://" + host)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("%w: the URL of the archive does not parse", spool.ErrInvalid)
		}
		if scheme == "nats" && !o.Plaintext && !isLoopback(u.Hostname()) {
			return nil, fmt.Errorf("the archive at %s: %w", u.Host, ErrPlaintext)
		}
		servers = append(servers, u.String())
	}
	b.Servers = strings.Join(servers, ",")
	if err := checkCredentials(o.Credentials); err != nil {
		return nil, err
	}
	return natsobj.Open(b), nil
}

// checkCredentials returns an error for a file that others can read.
func checkCredentials(name string) error {
	if name == "" {
		return nil
	}
	fi, err := os.Stat(name)
	if err == nil {
		err = privatedir.CheckSecret(name, fi)
	}
	if err != nil {
		return fmt.Errorf("read the credentials of the archive: %w", err)
	}
	return nil
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
	if err := checkCredentials(o.Credentials); err != nil {
		return nil, err
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
