package cli

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	_ "image/gif"  // decodes for sixel
	_ "image/jpeg" // decodes for kitty and sixel
	"image/png"
	"os"
	"slices"
	"strings"

	"github.com/spool-run/spool/internal/prompt"
)

// pictures is how a terminal shows images.
type pictures int

const (
	unknownPictures pictures = iota // the terminal was not asked
	noPictures
	kittyPictures
	itermPictures
	sixelPictures
)

// Limits of an image that is shown on a terminal. A larger one is a file.
const (
	maxPictureBytes  = 16 << 20
	maxPicturePixels = 16 << 20
)

// knownPictures returns how the terminal shows images, as far as the environment
// tells. A multiplexer passes on neither the environment's terminal nor, mostly,
// its images.
func knownPictures() pictures {
	program, kind := os.Getenv("TERM_PROGRAM"), os.Getenv("TERM")
	switch {
	case kind == "dumb":
		return noPictures
	case os.Getenv("TMUX") != "" || os.Getenv("STY") != "":
		return unknownPictures
	case os.Getenv("KITTY_WINDOW_ID") != "" || kind == "xterm-kitty" || kind == "xterm-ghostty" || program == "ghostty":
		return kittyPictures
	case program == "iTerm.app" || program == "WezTerm" || program == "mintty" || os.Getenv("LC_TERMINAL") == "iTerm2":
		return itermPictures
	}
	return unknownPictures
}

// reply takes a reply of the terminal to [prompt.Questions]. It reports whether
// the reply is the last one.
func (p *pictures) reply(kind, text string) (last bool) {
	switch kind {
	case prompt.Graphics:
		if strings.HasSuffix(text, ";OK") {
			*p = kittyPictures
		}
	case prompt.Attributes:
		if *p == unknownPictures {
			*p = noPictures
			if slices.Contains(strings.Split(text, ";"), "4") {
				*p = sixelPictures
			}
		}
		return true
	}
	return false
}

// sequence returns the bytes that show an image on the terminal.
func (p pictures) sequence(mime string, data []byte) ([]byte, error) {
	if len(data) > maxPictureBytes {
		return nil, fmt.Errorf("the image has more than %d bytes", maxPictureBytes)
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", mime, err)
	}
	if config.Width <= 0 || config.Height <= 0 || config.Width > maxPicturePixels/config.Height {
		return nil, fmt.Errorf("the image has more than %d pixels", maxPicturePixels)
	}
	if p == itermPictures {
		return fmt.Appendf(nil, "\x1b]1337;File=inline=1;size=%d:%s\a", len(data), base64.StdEncoding.EncodeToString(data)), nil
	}
	if p == kittyPictures && format == "png" {
		return kitty(data), nil
	}
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", mime, err)
	}
	switch p {
	case kittyPictures:
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			return nil, fmt.Errorf("encode the image: %w", err)
		}
		return kitty(b.Bytes()), nil
	case sixelPictures:
		return sixel(img), nil
	}
	return nil, errors.New("the terminal shows no images")
}

// kitty returns a PNG image for kitty and those that do as it does, in pieces of
// no more than 4096 bytes.
func kitty(data []byte) []byte {
	const most = 4096
	text := base64.StdEncoding.EncodeToString(data)
	var b []byte
	for first := true; first || text != ""; first = false {
		piece := text[:min(most, len(text))]
		text = text[len(piece):]
		more := 0
		if text != "" {
			more = 1
		}
		b = append(b, "\x1b_G"...)
		if first {
			b = append(b, "a=T,f=100,q=2,"...) // q: no reply
		}
		b = fmt.Appendf(b, "m=%d;%s\x1b\\", more, piece)
	}
	return b
}

// sixel returns an image as six rows of dots at a time, in 256 colours on white.
func sixel(img image.Image) []byte {
	size := image.Rect(0, 0, img.Bounds().Dx(), img.Bounds().Dy())
	flat := image.NewRGBA(size)
	draw.Draw(flat, size, image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(flat, size, img, img.Bounds().Min, draw.Over)
	dots := image.NewPaletted(size, palette.Plan9)
	draw.FloydSteinberg.Draw(dots, size, flat, image.Point{})
	b := fmt.Appendf(nil, "\x1bPq\"1;1;%d;%d", size.Dx(), size.Dy())
	for i, c := range dots.Palette {
		r, g, bl, _ := c.RGBA()
		b = fmt.Appendf(b, "#%d;2;%d;%d;%d", i, r*100/0xffff, g*100/0xffff, bl*100/0xffff)
	}
	for top := 0; top < size.Dy(); top += 6 {
		b = sixelBand(b, dots, top)
		b = append(b, '-')
	}
	return append(b, "\x1b\\"...)
}

// sixelBand appends six rows of dots, one colour after the other.
func sixelBand(b []byte, dots *image.Paletted, top int) []byte {
	width, height := dots.Rect.Dx(), min(6, dots.Rect.Dy()-top)
	var used [256]bool
	for y := top; y < top+height; y++ {
		for _, c := range dots.Pix[y*dots.Stride : y*dots.Stride+width] {
			used[c] = true
		}
	}
	for c := range used {
		if !used[c] {
			continue
		}
		b = fmt.Appendf(b, "#%d", c)
		last, count := byte(0), 0
		for x := 0; x <= width; x++ {
			bits := byte(0)
			for y := range height {
				if x < width && dots.Pix[(top+y)*dots.Stride+x] == byte(c) {
					bits |= 1 << y
				}
			}
			if x > 0 && (bits != last || x == width) {
				b = fmt.Appendf(b, "!%d%c", count, '?'+last)
				count = 0
			}
			last = bits
			count++
		}
		b = append(b, '$')
	}
	return b
}
