package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
)

// withoutImages returns a prompt for the log: its images are blobs. Without a place
// for blobs the log holds them itself.
func (q *inputQueue) withoutImages(data json.RawMessage) (json.RawMessage, error) {
	var p spool.Prompt
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%w: prompt: %w", spool.ErrInvalid, err)
	}
	if len(p.Images) == 0 || q.putBlob == nil {
		return data, nil
	}
	for i := range p.Images {
		image := &p.Images[i]
		blob, err := q.putBlob(image.MIME, bytes.NewReader(image.Bytes))
		switch {
		case errors.Is(err, spool.ErrUnsupported):
			return data, nil
		case err != nil:
			return nil, fmt.Errorf("keep image %d of the prompt: %w", i+1, err)
		}
		image.Bytes, image.Digest, image.Size = nil, blob.Digest, blob.Size
	}
	return json.Marshal(p)
}
