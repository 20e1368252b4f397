package cli

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/png"
	"strings"
	"testing"
)

// An image that is too large, or none, is a file and not shown.
func TestPictureLimits(t *testing.T) {
	var small bytes.Buffer
	if err := png.Encode(&small, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	huge := bytes.Clone(small.Bytes())
	binary.BigEndian.PutUint32(huge[16:], 1<<13)
	binary.BigEndian.PutUint32(huge[20:], 1<<13)
	binary.BigEndian.PutUint32(huge[29:], crc32.ChecksumIEEE(huge[12:29]))
	for _, p := range []pictures{kittyPictures, itermPictures, sixelPictures} {
		if _, err := p.sequence("image/png", small.Bytes()); err != nil {
			t.Errorf("%d: a small image: %v", p, err)
		}
		if _, err := p.sequence("image/png", huge); err == nil || !strings.Contains(err.Error(), "pixels") {
			t.Errorf("%d: too many pixels: %v", p, err)
		}
		if _, err := p.sequence("image/png", make([]byte, maxPictureBytes+1)); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%d: too many bytes: %v", p, err)
		}
		if _, err := p.sequence("image/svg+xml", []byte("<svg/>")); err == nil {
			t.Errorf("%d: what is not an image of dots is shown", p)
		}
	}
}

// A large image goes to kitty in pieces.
func TestKittyPieces(t *testing.T) {
	b := kitty(make([]byte, 5000))
	pieces := strings.Split(strings.TrimSuffix(string(b), "\x1b\\"), "\x1b\\")
	if len(pieces) != 2 || !strings.HasPrefix(pieces[0], "\x1b_Ga=T,f=100,q=2,m=1;") || !strings.HasPrefix(pieces[1], "\x1b_Gm=0;") {
		t.Errorf("%d pieces: %.40q", len(pieces), pieces)
	}
}
