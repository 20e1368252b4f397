// Package s3 keeps the objects of an archive in a bucket of an S3-compatible store.
package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/archive/s3/minioinit"
)

// Options configure a bucket.
type Options struct {
	Endpoint string // host, or host:port
	Insecure bool   // plain HTTP
	Region   string
	Bucket   string
	Prefix   string // of all keys, without a slash at its end
	// CredentialsFile is a file in the format of AWS; empty means the
	// environment, the file of the user, or the role of the machine.
	CredentialsFile string
	Profile         string
}

// Bucket is a bucket, or the part of one below a prefix.
type Bucket struct {
	opts      Options
	client    *minio.Client
	transport *http.Transport
}

var _ archive.Objects = (*Bucket)(nil)

// tries is how often a request is made before its error is returned: the shipper tries
// again, and later.
const tries = 2

// answerTime is how long the store may take to begin an answer.
const answerTime = time.Minute

// initClient initialises the packages of the client, which other commands do without.
var initClient = sync.OnceFunc(minioinit.Run)

// Open returns a bucket. It does not connect.
func Open(o Options) (*Bucket, error) {
	initClient()
	transport, err := minio.DefaultTransport(!o.Insecure)
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	transport.ResponseHeaderTimeout = answerTime
	providers := []credentials.Provider{&credentials.FileAWSCredentials{Filename: o.CredentialsFile, Profile: o.Profile}}
	if o.CredentialsFile == "" {
		providers = []credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{Profile: o.Profile},
			&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
		}
	}
	client, err := minio.New(o.Endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials(providers), Secure: !o.Insecure, Region: o.Region,
		Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	return &Bucket{o, client, transport}, nil
}

// String implements [archive.Objects].
func (b *Bucket) String() string { return "s3://" + b.opts.Bucket + "/" + b.opts.Prefix }

// Close implements [archive.Objects].
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

func (b *Bucket) name(key string) string {
	if b.opts.Prefix == "" {
		return key
	}
	return b.opts.Prefix + "/" + key
}

// Create implements [archive.Objects]. The store compares the checksum with what it
// received before the object exists.
func (b *Bucket) Create(ctx context.Context, key string, c archive.Content) error {
	sum, err := hex.DecodeString(c.SHA256)
	if err != nil {
		return err
	}
	o := minio.PutObjectOptions{
		DisableMultipart: true, ContentType: "application/octet-stream",
		// In this spelling the library hands it on as it is.
		UserMetadata: map[string]string{"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum)},
	}
	o.SetMatchETagExcept("*") // create only
	_, err = b.client.PutObject(ctx, b.opts.Bucket, b.name(key), c.Body, c.Body.Size(), o)
	return b.fault("create", key, err)
}

// Open implements [archive.Objects].
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	o, err := b.client.GetObject(ctx, b.opts.Bucket, b.name(key), minio.GetObjectOptions{})
	if err == nil {
		_, err = o.Stat() // this is what asks the store
	}
	if err != nil {
		return nil, b.fault("open", key, err)
	}
	return o, nil
}

// Stat implements [archive.Objects].
func (b *Bucket) Stat(ctx context.Context, key string) (archive.Object, error) {
	info, err := b.client.StatObject(ctx, b.opts.Bucket, b.name(key), minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return archive.Object{}, b.fault("stat", key, err)
	}
	o := archive.Object{Key: key, Size: info.Size, Modified: info.LastModified}
	if sum, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil {
		o.SHA256 = hex.EncodeToString(sum)
	}
	return o, nil
}

// List implements [archive.Objects].
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[archive.Object, error] {
	return func(yield func(archive.Object, error) bool) {
		for info := range b.client.ListObjectsIter(ctx, b.opts.Bucket, minio.ListObjectsOptions{Prefix: b.name(prefix), Recursive: true}) {
			if info.Err != nil {
				yield(archive.Object{}, b.fault("list", prefix, info.Err))
				return
			}
			key := strings.TrimPrefix(info.Key, b.name(""))
			if strings.HasSuffix(key, "/") { // a directory, as some stores have
				continue
			}
			if !yield(archive.Object{Key: key, Size: info.Size, Modified: info.LastModified}, nil) {
				return
			}
		}
	}
}

// Remove implements [archive.Objects].
func (b *Bucket) Remove(ctx context.Context, key string) error {
	err := b.fault("remove", key, b.client.RemoveObject(ctx, b.opts.Bucket, b.name(key), minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// fault returns the error of a place for one of the store.
func (b *Bucket) fault(op, key string, err error) error {
	if err == nil {
		return nil
	}
	switch r := minio.ToErrorResponse(err); {
	case r.Code == minio.NoSuchKey:
		err = fs.ErrNotExist
	case r.Code == minio.PreconditionFailed, r.StatusCode == http.StatusPreconditionFailed:
		err = fs.ErrExist
	}
	return fmt.Errorf("%s %s in %s: %w", op, key, b, err)
}
