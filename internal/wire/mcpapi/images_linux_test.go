package mcpapi_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// plot is code that displays images of so many pixels, with nothing but what Python has.
const plot = `
import zlib, struct
class Plot:
    def __init__(self, w, h, seed): self.w, self.h, self.seed = w, h, seed
    def _repr_png_(self):
        import random
        r = random.Random(self.seed)
        rows = b"".join(b"\0" + r.randbytes(3*self.w) for _ in range(self.h))
        chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", self.w, self.h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
for i in range(%d): display(Plot(%d, %d, i))
`

// TestImages displays images: the last ones come scaled, the others as links.
func TestImages(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "python", Arguments: args{"code": fmt.Sprintf(plot, 3, 2000, 100), "wait_ms": 50_000}})
	if err != nil {
		t.Fatal(err)
	}
	text := textOf(result)
	var images, links int
	for _, content := range result.Content {
		switch content := content.(type) {
		case *mcp.ImageContent:
			images++
			config, _, err := image.DecodeConfig(bytes.NewReader(content.Data))
			if err != nil || max(config.Width, config.Height) > mcpapi.MaxImageEdge || len(content.Data) > mcpapi.MaxImageBytes {
				t.Errorf("an image of %d bytes, %d × %d, %v", len(content.Data), config.Width, config.Height, err)
			}
		case *mcp.ResourceLink:
			links++
			got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: content.URI})
			if err != nil {
				t.Fatal(err)
			}
			if config, err := png.DecodeConfig(bytes.NewReader(got.Contents[0].Blob)); err != nil || config.Width != 2000 || got.Contents[0].MIMEType != "image/png" {
				t.Errorf("%s is %d pixels wide, %v", content.URI, config.Width, err)
			}
		}
	}
	if images != 2 || links != 1 || result.StructuredContent != nil || !strings.Contains(text, " ok, 3 images, next ") {
		t.Errorf("%d images, %d links, %v: %s", images, links, result.StructuredContent, text)
	}
}

// TestShrink makes images small enough, whatever is in them.
func TestShrink(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {1568, 10}, {1569, 1}, {1700, 150}, {20, 3000}} {
		for _, noise := range []bool{false, true} {
			m := image.NewNRGBA(image.Rect(0, 0, size[0], size[1]))
			r := rand.New(rand.NewPCG(1, 2))
			for i := range m.Pix {
				m.Pix[i] = 200
				if noise && i%2 == 0 {
					m.Pix[i] = uint8(r.Uint32())
				}
			}
			var b bytes.Buffer
			if err := png.Encode(&b, m); err != nil {
				t.Fatal(err)
			}
			data, mime, err := mcpapi.Shrink(b.Bytes(), "image/png")
			if err != nil {
				t.Fatal(err)
			}
			got, format, err := image.Decode(bytes.NewReader(data))
			if err != nil || "image/"+format != mime || len(data) > mcpapi.MaxImageBytes || max(got.Bounds().Dx(), got.Bounds().Dy()) > mcpapi.MaxImageEdge {
				t.Errorf("%v, noise %v: %s of %d bytes, %v, %v", size, noise, mime, len(data), got.Bounds(), err)
				continue
			}
			if grey := color.NRGBAModel.Convert(got.At(0, 0)).(color.NRGBA); !noise && mime == "image/png" && (grey.R < 198 || grey.R > 202) {
				t.Errorf("%v became %v", size, grey)
			}
		}
	}
	for _, bad := range []string{"", "no image", "\x89PNG\r\n\x1a\n"} {
		if _, _, err := mcpapi.Shrink([]byte(bad), "image/png"); err == nil {
			t.Errorf("%q is an image", bad)
		}
	}
}

// TestResources reads runs as resources.
func TestResources(t *testing.T) {
	for _, version := range versions {
		c := connect(t, mcpapi.Options{Backend: openHost(t)}, version, nil)
		v, _ := c.call("run_command", args{"command": "echo hello; head -c 2500000 /dev/zero | tr '\\0' x", "wait_ms": 50_000})
		run := "spool://runs/" + string(v.Run)
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 4 {
			t.Errorf("the templates are %+v, %v", templates, err)
		}
		list, err := c.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != run {
			t.Errorf("the resources are %+v, %v", list, err)
		}
		read := func(uri string) *mcp.ResourceContents {
			t.Helper()
			got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if err != nil {
				t.Fatal(err)
			}
			return got.Contents[0]
		}
		if got := read(run); !strings.Contains(got.Text, `"state":"closed"`) || got.MIMEType != "application/json" {
			t.Errorf("%s is %+v", run, got)
		}
		if got := read(run + "/transcript"); !strings.HasPrefix(got.Text, "hello\n") {
			t.Errorf("the transcript is %.100q", got.Text)
		}
		if got := read(run + "/output?tail=5"); got.Text != "xxxxx" {
			t.Errorf("the tail is %.100q", got.Text)
		}
		all, after := "", 0
		for pages := 0; ; pages++ {
			got := read(fmt.Sprintf("%s/output?after=%d", run, after))
			if len(got.Text) > mcpapi.MaxResource {
				t.Errorf("a page of %d bytes", len(got.Text))
			}
			all += got.Text
			after = int(got.Meta["next"].(float64))
			if got.Meta["more"] == false {
				if pages < 2 {
					t.Errorf("%d pages", pages)
				}
				break
			}
		}
		if want := "hello\n" + strings.Repeat("x", 2_500_000); all != want {
			t.Errorf("the output has %d bytes, want %d", len(all), len(want))
		}
		for _, bad := range []string{"spool://runs/nobody", run + "/events/1/forms/image/png", run + "/events/x/forms/a/b", run + "/output?after=x", run + "/secret"} {
			if got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: bad}); err == nil {
				t.Errorf("%s is %+v", bad, got.Contents[0])
			}
		}
		if v.State != spool.StateClosed {
			t.Errorf("the run is %s", v.State)
		}
	}
}
