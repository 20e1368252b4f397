package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// Limits of images.
const (
	// maxImageEdge is the longest edge of an image in a result, in pixels; models scale
	// down what is larger.
	maxImageEdge = 1568
	// maxImageBytes is the size of an image in a result.
	maxImageBytes = 200 << 10
	// maxImageRead is the size of an image that is read to be scaled, and
	// maxImagePixels how many pixels it may have.
	maxImageRead   = 16 << 20
	maxImagePixels = 16 << 20
)

// picture is an image that a turn displayed.
type picture struct {
	seq   spool.Seq // of the event
	id    string    // of the display, if it may be updated
	value render.Value
}

// addImages adds the images of a turn to a view: the last ones themselves, as many as are
// wanted, and links to the others.
func (c *call) addImages(v *RunView, run *spool.Run, turn spool.Seq, most int) error {
	var all []picture
	err := each(c.ctx, run, turn, v.Next, func(e *spool.Event) error {
		if e.Turn != turn || e.Kind != python.KindDisplay && e.Kind != python.KindResult {
			return nil
		}
		var d python.Display
		if json.Unmarshal(e.Data, &d) != nil {
			return nil
		}
		all = withDisplay(all, e.Seq, &d)
		return nil
	})
	if err != nil {
		return err
	}
	v.Images = len(all)
	for i, p := range all {
		if i >= len(all)-most {
			data, mime, err := c.image(run, p.value)
			if err == nil {
				v.content = append(v.content, &mcp.ImageContent{Data: data, MIMEType: mime})
				continue
			}
		}
		size := p.value.Size()
		v.content = append(v.content, &mcp.ResourceLink{
			URI: formURI(v.Run, p.seq, p.value.MIME), Name: fmt.Sprintf("image of event %d", p.seq), MIMEType: p.value.MIME, Size: &size,
		})
	}
	return nil
}

// withDisplay adds the image of a display.
func withDisplay(all []picture, seq spool.Seq, d *python.Display) []picture {
	if d.Clear {
		return nil
	}
	out, err := render.Renderer{MaxText: 1}.Display(context.Background(), d) // without blobs it reads nothing
	if err != nil || len(out.Images) == 0 {
		return all
	}
	p := picture{seq, d.ID, out.Images[0]}
	for i := range all {
		if d.Update && d.ID != "" && all[i].id == d.ID {
			all[i] = p
			return all
		}
	}
	return append(all, p)
}

// image returns an image that is small enough for a result.
func (c *call) image(run *spool.Run, v render.Value) (data []byte, mime string, err error) {
	data, err = readValue(c.ctx, run, v)
	if err != nil {
		return nil, "", fmt.Errorf("read an image: %w", err)
	}
	return shrink(data, v.MIME)
}

// shrink makes an image small enough.
func shrink(data []byte, mime string) ([]byte, string, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, "", fmt.Errorf("decode an image: %w", err)
	}
	if max(config.Width, config.Height) <= maxImageEdge && len(data) <= maxImageBytes {
		return data, mime, nil
	}
	if config.Width*config.Height > maxImagePixels {
		return nil, "", fmt.Errorf("an image of %d × %d pixels: %w", config.Width, config.Height, spool.ErrUnsupported)
	}
	decoded, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, "", fmt.Errorf("decode an image: %w", err)
	}
	for edge := maxImageEdge; edge >= 64; edge = edge * 2 / 3 {
		decoded = scale(decoded, edge)
		encoders := []func(io.Writer, image.Image) error{png.Encode, jpegAt(85), jpegAt(70)}
		if edge < maxImageEdge { // PNG is for drawings, which are small enough at once
			encoders = encoders[1:]
		}
		for _, encode := range encoders {
			var b bytes.Buffer
			if err := encode(&b, decoded); err != nil {
				return nil, "", fmt.Errorf("encode an image: %w", err)
			}
			if b.Len() > maxImageBytes {
				continue
			}
			if bytes.HasPrefix(b.Bytes(), []byte("\x89PNG")) {
				return b.Bytes(), "image/png", nil
			}
			return b.Bytes(), "image/jpeg", nil
		}
	}
	return nil, "", fmt.Errorf("an image that stays too large: %w", spool.ErrUnsupported)
}

func jpegAt(quality int) func(io.Writer, image.Image) error {
	return func(w io.Writer, m image.Image) error {
		opaque := image.NewRGBA(m.Bounds())
		draw.Draw(opaque, opaque.Bounds(), image.White, image.Point{}, draw.Src)
		draw.Draw(opaque, opaque.Bounds(), m, m.Bounds().Min, draw.Over)
		return jpeg.Encode(w, opaque, &jpeg.Options{Quality: quality})
	}
}

// scale returns an image whose edges are at most so long: each pixel is the average of
// those whose area it takes.
func scale(from image.Image, edge int) image.Image {
	b := from.Bounds()
	longest := max(b.Dx(), b.Dy())
	if longest <= edge {
		return from
	}
	src := image.NewRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	draw.Draw(src, src.Bounds(), from, b.Min, draw.Src)
	w, h := max(1, b.Dx()*edge/longest), max(1, b.Dy()*edge/longest)
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		y0, y1 := y*b.Dy()/h, max((y+1)*b.Dy()/h, y*b.Dy()/h+1)
		for x := range w {
			x0, x1 := x*b.Dx()/w, max((x+1)*b.Dx()/w, x*b.Dx()/w+1)
			var sum [4]int
			for sy := y0; sy < y1; sy++ {
				row := src.Pix[sy*src.Stride+4*x0 : sy*src.Stride+4*x1]
				for i, v := range row {
					sum[i%4] += int(v)
				}
			}
			n := (x1 - x0) * (y1 - y0)
			at := out.Pix[y*out.Stride+4*x:]
			for i := range sum {
				at[i] = uint8(sum[i] / n)
			}
		}
	}
	return out
}
