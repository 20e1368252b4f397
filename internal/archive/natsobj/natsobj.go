// Package natsobj keeps the objects of an archive in an object store of NATS JetStream,
// for installations that have nothing else. The objects are those of any object store of
// NATS, so that its tools read them.
package natsobj

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/pause"
)

// DefaultMaxBytes bounds a bucket, so that it does not take the disk of its servers.
const DefaultMaxBytes = 8 << 30

// Options configure a bucket.
type Options struct {
	Servers  string // URLs, separated by commas
	Bucket   string
	Replicas int         // servers that hold every object; zero means three, or the only one
	MaxBytes int64       // of a bucket that does not exist yet; zero means DefaultMaxBytes
	Creds    string      // file with the credentials for NATS; may be empty
	TLS      *tls.Config // nil means that of the URLs
	Name     string      // how the place is called for people
}

// Limits of requests.
const (
	chunkBytes = 128 << 10 // of one message, as all object stores have it
	// requestTime bounds one attempt, and requestTries is how often it is made: a
	// server that leads a stream may be replaced meanwhile.
	requestTime  = 5 * time.Second
	requestTries = 4
	requestPause = 200 * time.Millisecond
	// orphanFor is how long the chunks of an upload are kept that nobody goes on
	// with, and sweepEvery how often they are looked for.
	orphanFor  = 24 * time.Hour
	sweepEvery = time.Hour
)

// Bucket is an object store.
type Bucket struct {
	opts Options

	mu     sync.Mutex
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	swept  time.Time
	closed bool
}

var _ archive.Objects = (*Bucket)(nil)

// Open returns a bucket. It does not connect.
func Open(o Options) *Bucket {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	return &Bucket{opts: o}
}

// String implements [archive.Objects].
func (b *Bucket) String() string { return b.opts.Name }

// Close implements [archive.Objects].
func (b *Bucket) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.nc != nil {
		b.nc.Close()
	}
	return nil
}

// objects returns the stream of the bucket, which it makes if there is none.
func (b *Bucket) objects(ctx context.Context) (jetstream.JetStream, jetstream.Stream, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, fs.ErrClosed
	}
	if b.stream != nil {
		return b.js, b.stream, nil
	}
	if err := b.connect(); err != nil {
		return nil, nil, err
	}
	err := again(ctx, func(ctx context.Context) (err error) {
		b.stream, err = b.js.Stream(ctx, "OBJ_"+b.opts.Bucket)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = b.make(ctx)
		}
		return err
	})
	return b.js, b.stream, err
}

// connect makes the connection, if there is none. The caller holds b.mu.
func (b *Bucket) connect() (err error) {
	if b.nc != nil {
		return nil
	}
	opts := []nats.Option{
		nats.Name("spool archive"), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
	}
	if b.opts.TLS != nil {
		opts = append(opts, nats.Secure(b.opts.TLS))
	}
	if b.opts.Creds != "" {
		opts = append(opts, nats.UserCredentials(b.opts.Creds))
	}
	if b.nc, err = nats.Connect(b.opts.Servers, opts...); err != nil {
		return fmt.Errorf("connect to the archive: %w", err)
	}
	b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(requestTime))
	return err
}

// codeNoReplicas says that a server is alone.
const codeNoReplicas = jetstream.ErrorCode(10074)

// make makes the bucket. Every read asks the leader of the stream: a copy may be behind.
func (b *Bucket) make(ctx context.Context) (err error) {
	c := jetstream.StreamConfig{
		Name: "OBJ_" + b.opts.Bucket, Description: "archive of Spool", Subjects: []string{b.subject("C", ">"), b.subject("M", ">")},
		MaxBytes: b.opts.MaxBytes, Storage: jetstream.FileStorage, Replicas: b.opts.Replicas, Discard: jetstream.DiscardNew, AllowRollup: true,
	}
	if c.Replicas == 0 {
		c.Replicas = 3
	}
	b.stream, err = b.js.CreateStream(ctx, c)
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.ErrorCode == codeNoReplicas && b.opts.Replicas == 0 {
		c.Replicas = 1
		b.stream, err = b.js.CreateStream(ctx, c)
	}
	return err
}

// subject returns the subject of chunks (C) or of the description (M) of an object.
func (b *Bucket) subject(kind, what string) string {
	return "$O." + b.opts.Bucket + "." + kind + "." + what
}

func (b *Bucket) meta(key string) string {
	return b.subject("M", base64.URLEncoding.EncodeToString([]byte(key)))
}

// again makes a request a few times. An answer of the store that is an error is one.
func again(ctx context.Context, do func(context.Context) error) (err error) {
	for range requestTries {
		rctx, cancel := context.WithTimeout(ctx, requestTime)
		err = do(rctx)
		cancel()
		var api *jetstream.APIError
		if err == nil || ctx.Err() != nil || errors.As(err, &api) && api.Code < 500 || errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if pause.For(ctx, requestPause) != nil {
			return err
		}
	}
	return err
}

// Create implements [archive.Objects]. The chunks come first; the description, which is
// created only, makes them an object.
func (b *Bucket) Create(ctx context.Context, key string, c archive.Content) (err error) {
	js, stream, err := b.objects(ctx)
	if err != nil {
		return err
	}
	if _, _, err := b.describe(ctx, key); err == nil {
		return &fs.PathError{Op: "create", Path: key, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info := jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: key, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}}, Bucket: b.opts.Bucket, NUID: nuid.Next()}
	chunks := b.subject("C", info.NUID)
	done := false
	defer func() {
		if !done { // else a sweep finds them
			pctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
			defer cancel()
			_ = stream.Purge(pctx, jetstream.WithPurgeSubject(chunks))
		}
	}()
	sum, chunk := sha256.New(), make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(c.Body, chunk)
		if n > 0 {
			sum.Write(chunk[:n])
			if err := b.publish(ctx, js, &nats.Msg{Subject: chunks, Data: chunk[:n]}, fmt.Sprint(info.NUID, "-", info.Chunks)); err != nil {
				return b.fault("create", key, err)
			}
			info.Size, info.Chunks = info.Size+uint64(n), info.Chunks+1
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != c.SHA256 {
		return fmt.Errorf("%w: %s has the checksum %.12s, want %.12s", archive.ErrDamaged, key, got, c.SHA256)
	}
	info.Digest = "SHA-256=" + base64.URLEncoding.EncodeToString(sum.Sum(nil))
	data, err := json.Marshal(&info)
	if err != nil {
		return err
	}
	m := nats.NewMsg(b.meta(key))
	m.Data = data
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	err = b.publish(ctx, js, m, info.NUID, jetstream.WithExpectLastSequencePerSubject(0))
	if err != nil { // perhaps it was stored, and nobody heard the answer
		is, _, statErr := b.describe(context.WithoutCancel(ctx), key)
		switch {
		case statErr == nil && is.NUID == info.NUID:
			err = nil
		case statErr == nil:
			err = fs.ErrExist
		case !errors.Is(statErr, fs.ErrNotExist):
			done = true // nobody knows
		}
	}
	if err == nil {
		done = true
		return nil
	}
	return b.fault("create", key, err)
}

// publish stores a message once, however often it is sent.
func (b *Bucket) publish(ctx context.Context, js jetstream.JetStream, m *nats.Msg, id string, opts ...jetstream.PublishOpt) error {
	opts = append(opts, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	return again(ctx, func(ctx context.Context) error {
		_, err := js.PublishMsg(ctx, m, opts...)
		return err
	})
}

// describe reads the description of an object.
func (b *Bucket) describe(ctx context.Context, key string) (info jetstream.ObjectInfo, modified time.Time, err error) {
	_, stream, err := b.objects(ctx)
	if err != nil {
		return info, modified, err
	}
	err = again(ctx, func(ctx context.Context) error {
		m, err := stream.GetLastMsgForSubject(ctx, b.meta(key))
		if err == nil {
			modified = m.Time
			err = json.Unmarshal(m.Data, &info)
		}
		return err
	})
	if err == nil && info.Deleted {
		err = fs.ErrNotExist
	}
	return info, modified, b.fault("stat", key, err)
}

// Stat implements [archive.Objects]. The checksum in the description is that of who sent
// the object, so it says nothing about what is stored.
func (b *Bucket) Stat(ctx context.Context, key string) (archive.Object, error) {
	info, modified, err := b.describe(ctx, key)
	return archive.Object{Key: key, Size: int64(info.Size), Modified: modified}, err
}

// Open implements [archive.Objects].
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	info, _, err := b.describe(ctx, key)
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, bucket: b, key: key, chunks: b.subject("C", info.NUID), left: info.Chunks}, nil
}

// reader reads an object, a chunk after the other.
type reader struct {
	ctx    context.Context
	bucket *Bucket
	key    string
	chunks string // their subject
	next   uint64 // the first sequence that the next one may have
	left   uint32
	chunk  []byte // what is left of the present one
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		_, stream, err := r.bucket.objects(r.ctx)
		if err != nil {
			return 0, err
		}
		err = again(r.ctx, func(ctx context.Context) error {
			m, err := stream.GetMsg(ctx, max(r.next, 1), jetstream.WithGetMsgSubject(r.chunks))
			if err == nil {
				r.chunk, r.next, r.left = m.Data, m.Sequence+1, r.left-1
			}
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return 0, fmt.Errorf("%w: a part of %s is gone", archive.ErrDamaged, r.key)
		}
		if err != nil {
			return 0, r.bucket.fault("read", r.key, err)
		}
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// Close implements [io.Closer].
func (r *reader) Close() error { return nil }

// List implements [archive.Objects]. It reads the descriptions of all objects.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[archive.Object, error] {
	return func(yield func(archive.Object, error) bool) {
		known := make(map[string]bool) // the chunks of objects
		left, err := b.list(ctx, func(info *jetstream.ObjectInfo, modified time.Time) bool {
			known[info.NUID] = true
			return info.Deleted || !strings.HasPrefix(info.Name, prefix) || yield(archive.Object{Key: info.Name, Size: int64(info.Size), Modified: modified}, nil)
		})
		switch {
		case left:
		case err != nil:
			yield(archive.Object{}, b.fault("list", prefix, err))
		default:
			b.sweep(ctx, known)
		}
	}
}

// list yields all descriptions. It reports whether the reader left.
func (b *Bucket) list(ctx context.Context, yield func(*jetstream.ObjectInfo, time.Time) bool) (left bool, err error) {
	js, stream, err := b.objects(ctx)
	if err != nil {
		return false, err
	}
	var c jetstream.Consumer
	err = again(ctx, func(ctx context.Context) (err error) {
		c, err = js.OrderedConsumer(ctx, stream.CachedInfo().Config.Name, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{b.subject("M", ">")}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, MaxResetAttempts: 3,
		})
		return err
	})
	if err != nil {
		return false, err
	}
	if info := c.CachedInfo(); info != nil && info.NumPending == 0 {
		return false, nil
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(500))
	if err != nil {
		return false, err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil {
			return false, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		var info jetstream.ObjectInfo
		if err := json.Unmarshal(m.Data(), &info); err != nil {
			return false, fmt.Errorf("%w: %w", archive.ErrDamaged, err)
		}
		if !yield(&info, meta.Timestamp) {
			return true, nil
		}
		if meta.NumPending == 0 {
			return false, nil
		}
	}
}

// sweep removes the chunks of uploads that were given up, now and then. What it cannot
// remove, the next one does.
func (b *Bucket) sweep(ctx context.Context, known map[string]bool) {
	b.mu.Lock()
	due := time.Since(b.swept) > sweepEvery
	if due {
		b.swept = time.Now()
	}
	b.mu.Unlock()
	if _, stream, err := b.objects(ctx); due && err == nil {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(b.subject("C", ">")))
		if err != nil {
			return
		}
		for subject := range info.State.Subjects {
			if known[strings.TrimPrefix(subject, b.subject("C", ""))] {
				continue
			}
			if m, err := stream.GetLastMsgForSubject(ctx, subject); err == nil && time.Since(m.Time) > orphanFor {
				_ = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
			}
		}
	}
}

// Remove implements [archive.Objects].
func (b *Bucket) Remove(ctx context.Context, key string) error {
	info, _, err := b.describe(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, stream, err := b.objects(ctx)
	if err != nil {
		return err
	}
	for _, subject := range []string{b.meta(key), b.subject("C", info.NUID)} {
		err := again(ctx, func(ctx context.Context) error { return stream.Purge(ctx, jetstream.WithPurgeSubject(subject)) })
		if err != nil {
			return b.fault("remove", key, err)
		}
	}
	return nil
}

// codeFull says that the bucket has no room.
const codeFull = jetstream.ErrorCode(10077)

// ErrFull means that a bucket has as many bytes as it may.
var ErrFull = errors.New("the bucket of the archive is full")

// fault returns the error of a place for one of the store.
func (b *Bucket) fault(op, key string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		err = fs.ErrNotExist
	case errors.As(err, &api) && api.ErrorCode == codeFull:
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return &fs.PathError{Op: op, Path: key, Err: err}
}
