package cli_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/servertest"
)

// drawing returns a PNG image of two colours, seven rows high, in base64.
func drawing(t *testing.T) string {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 4, 7))
	for y := range 7 {
		for x := range 4 {
			c := color.RGBA{A: 255}
			if x < 3 {
				c.R = 255
			}
			img.Set(x, y, c)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// show displays the image at a prompt.
func (c *terminal) show(data string) {
	c.t.Helper()
	c.typed(fmt.Sprintf("\x1b[200~import base64\nclass P: _repr_png_ = lambda self: base64.b64decode('%s')\n\x1b[201~\r", data))
	c.prompt()
	c.typed("display(P()); print('be' + 'low')\r")
}

// TestPromptPictures shows images on terminals that can, and as files elsewhere.
func TestPromptPictures(t *testing.T) {
	data := drawing(t)
	kitty := "\x1b_Ga=T,f=100,q=2,m=0;" + data + "\x1b\\\r\n"
	iterm := fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a\r\n", base64.StdEncoding.DecodedLen(len(data))-strings.Count(data, "="), data)
	const asks = "\x1b[c"
	for _, test := range []struct{ name, variable, value, reply, want string }{
		{"kitty", "TEST_KITTY_WINDOW_ID", "1", "", kitty},
		{"iTerm2", "TEST_TERM_PROGRAM", "iTerm.app", "", iterm},
		{"asked kitty", "", "", "\x1b_Gi=31;OK\x1b\\\x1b[?62c", kitty},
		{"asked sixel", "", "", "\x1b[?62;4;22c", "\x1bPq\"1;1;4;7#0;2;"},
		{"sixel in tmux", "TEST_TMUX", "/tmp/x", "\x1b[?1;2;4c", "\x1bPq\"1;1;4;7#0;2;"},
		{"none", "", "", "\x1b[?62;22c", "[image/png: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.variable != "" {
				t.Setenv(test.variable, test.value)
			}
			c := typeIn(t, servertest.StateDir(t), "py")
			c.prompt()
			c.show(data)
			if test.reply != "" {
				c.see(asks)
				c.typed(test.reply + "1 + 1") // keys that come with the reply stay
			}
			c.see(test.want)
			c.see("below\r\n")
			c.prompt()
			if test.reply != "" {
				c.screenEnds(">>> 1 + 1")
				c.typed("\x03")
				c.prompt()
			}
			c.typed("\x04")
			c.exits(0)
		})
	}
}

// TestPicturesOfScripts shows images of a script on a terminal, and saves them too
// if --images asks for it.
func TestPicturesOfScripts(t *testing.T) {
	t.Setenv("TEST_KITTY_WINDOW_ID", "1")
	data := drawing(t)
	code := fmt.Sprintf("import base64\nclass P: _repr_png_ = lambda self: base64.b64decode('%s')\ndisplay(P())\nprint('end')", data)
	c := typeIn(t, servertest.StateDir(t), "py", "--images", filepath.Join(t.TempDir(), "images"), "-c", code)
	c.see("\x1b_Ga=T,f=100,q=2,m=0;" + data + "\x1b\\\r\n[image/png: ")
	c.see("1.png]\r\nend\r\n")
	c.exits(0)
}
