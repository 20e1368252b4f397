package export

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

// text is a document of plain text: of a process it is what that wrote.
type text struct{ *bufio.Writer }

func (d *text) begin(string, [][2]string) {}

func (d *text) cell(code string)    { d.lines(indent(code, ">>> ", "... ")) }
func (d *text) prompt(text string)  { d.lines(indent(text, "> ", "> ")) }
func (d *text) message(text string) { d.lines(text) }
func (d *text) output(text string)  { _, _ = d.WriteString(text) } // errors show at the end
func (d *text) note(text string)    { d.lines("[" + text + "]") }
func (d *text) failure(text string) { d.lines(text) }
func (d *text) details(text string) { d.lines(indent(text, "    ", "    ")) }
func (d *text) end(string)          {}
func (d *text) lines(text string)   { _, _ = d.WriteString(strings.TrimRight(text, "\n") + "\n") }
func (d *text) image(mime string, _ io.Reader) error {
	d.note("an image, " + mime)
	return nil
}

// indent begins the first line of a text with a prefix, and the others with another.
func indent(text, first, others string) string {
	return first + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+others)
}

// fence begins and ends blocks of a Markdown document.
const fence = "~~~~~~~~"

// markdown is a document in Markdown.
type markdown struct {
	*bufio.Writer
	open bool // a block of output
}

func (d *markdown) put(format string, args ...any) { _, _ = fmt.Fprintf(d, format, args...) }

func (d *markdown) begin(title string, facts [][2]string) {
	d.put("# %s\n\n", markdownEscaper.Replace(title))
	for _, f := range facts {
		d.put("- %s: `%s`\n", f[0], strings.ReplaceAll(f[1], "`", "'"))
	}
	d.put("\n")
}

// markdownEscaper lets text be only text.
var markdownEscaper = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", "#", `\#`, "\n", " ")

// block adds a block of text that is shown as it is.
func (d *markdown) block(language, text string) {
	d.close()
	d.put("%s%s\n%s\n%s\n\n", fence, language, inside(strings.TrimRight(text, "\n")), fence)
}

// inside returns text for a block: no line of it ends the block.
func inside(text string) string {
	if !strings.Contains(text, fence) {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(strings.TrimLeft(l, " "), fence) {
			lines[i] = "    " + l
		}
	}
	return strings.Join(lines, "\n")
}

func (d *markdown) close() {
	if d.open {
		d.put("%s\n\n", fence)
		d.open = false
	}
}

func (d *markdown) output(text string) {
	if !d.open {
		d.put("%stext\n", fence)
		d.open = true
	}
	_, _ = d.WriteString(inside(text)) // errors show at the end
}

func (d *markdown) cell(code string) { d.block("python", code) }

func (d *markdown) prompt(text string) {
	d.close()
	d.put("%s\n\n", indent(text, "> ", "> "))
}

func (d *markdown) message(text string) {
	d.close()
	d.put("%s\n\n", strings.TrimRight(text, "\n"))
}

func (d *markdown) note(text string) {
	d.close()
	first, rest, more := strings.Cut(strings.TrimRight(text, "\n"), "\n")
	d.put("*%s*\n\n", markdownEscaper.Replace(strings.TrimSpace(first)))
	if more {
		d.block("text", rest)
	}
}

func (d *markdown) failure(text string) { d.block("text", text) }
func (d *markdown) details(text string) { d.block("text", text) }

func (d *markdown) image(mime string, src io.Reader) error {
	d.close()
	d.put("![image](data:%s;base64,", mime)
	if err := encode(d, src); err != nil {
		return err
	}
	d.put(")\n\n")
	return nil
}

func (d *markdown) end(text string) {
	d.close()
	d.put("*%s*\n", markdownEscaper.Replace(text))
}

// encode writes bytes as base64.
func encode(w io.Writer, src io.Reader) error {
	e := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := io.Copy(e, src); err != nil {
		return err
	}
	return e.Close()
}
