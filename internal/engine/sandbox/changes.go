package sandbox

import (
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// reportChanges writes what the overlays collected.
func (s *session) reportChanges() {
	for _, o := range s.files.overlays {
		list, err := o.layer.Changes()
		if err != nil || len(list) == 0 {
			continue
		}
		report := Changes{Mount: o.guest, Changes: make([]Change, 0, len(list))}
		left := int64(MaxChangeBytes)
		for _, c := range list {
			change := Change{Change: c}
			if c.Mode.IsFile() {
				blob, err := s.blob(o.layer, c, left)
				if err != nil {
					report.Omitted++
				} else {
					left -= blob.Size
					change.Blob = &blob
				}
			}
			report.Changes = append(report.Changes, change)
		}
		data := encode(report)
		if len(data) > spool.MaxEventBytes {
			report.Omitted, report.Changes = len(report.Changes), nil
			data = encode(report)
		}
		_ = s.notice(0, spool.Notice{Code: NoticeChanges, Text: "changed files below " + o.guest, Data: data})
	}
}

// blob keeps the content of a changed file.
func (s *session) blob(o *vfs.Overlay, c vfs.Change, left int64) (spool.Blob, error) {
	if c.Size > left {
		return spool.Blob{}, vfs.EFBIG
	}
	f, err := o.Open(c.Path)
	if err != nil {
		return spool.Blob{}, err
	}
	defer f.Close() //nolint:errcheck // was only read
	return s.out.PutBlob("application/octet-stream", io.NewSectionReader(whole{f}, 0, c.Size))
}

// whole makes the end of a file what io.ReaderAt says it is.
type whole struct{ vfs.File }

func (w whole) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.File.ReadAt(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
