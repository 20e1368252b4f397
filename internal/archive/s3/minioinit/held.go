//go:build go1.26 && !go1.27

package minioinit

import (
	_ "unsafe" // for go:linkname

	"github.com/spool-run/spool/internal/lateinit"
)

// The packages that only the client for S3 needs, in the order of their dependencies: those
// that take long, and all that import one of them and have something to initialise.
var (
	//go:linkname s3utils github.com/minio/minio-go/v7/pkg/s3utils..inittask
	s3utils lateinit.Package
	//go:linkname signer github.com/minio/minio-go/v7/pkg/signer..inittask
	signer lateinit.Package
	//go:linkname credentials github.com/minio/minio-go/v7/pkg/credentials..inittask
	credentials lateinit.Package
	//go:linkname xid github.com/rs/xid..inittask
	xid lateinit.Package
	//go:linkname replication github.com/minio/minio-go/v7/pkg/replication..inittask
	replication lateinit.Package
	//go:linkname tags github.com/minio/minio-go/v7/pkg/tags..inittask
	tags lateinit.Package
	//go:linkname minio github.com/minio/minio-go/v7..inittask
	minio lateinit.Package
)

func init() {
	held = lateinit.Hold(&s3utils, &signer, &credentials, &xid, &replication, &tags, &minio)
}
