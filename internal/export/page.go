package export

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"
)

// page is a document in HTML: one file that loads nothing and runs nothing.
type page struct {
	*bufio.Writer
	open bool // a block of output
}

// pageHead is what comes before the title. The policy is for who opens the file: what
// a run wrote is only text, and if it were not, it could do nothing.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 14px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; padding: .75rem; border: 1px solid #8885; border-radius: 6px; }
pre.cell { border-left: 4px solid #47a; }
pre.failure { border-left: 4px solid #c44; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
p, blockquote { white-space: pre-wrap; overflow-wrap: anywhere; }
blockquote { margin: 1.5rem 0; padding: .25rem 1rem; border-left: 4px solid #47a; }
p.note { opacity: .75; font-size: 14px; margin: .25rem 0; }
img { max-width: 100%; }
</style>
`

func (d *page) put(format string, args ...any) { _, _ = fmt.Fprintf(d, format, args...) }

func (d *page) begin(title string, facts [][2]string) {
	_, _ = d.WriteString(pageHead) // errors show at the end
	title = html.EscapeString(title)
	d.put("<title>%s</title>\n</head>\n<body>\n<header>\n<h1>%s</h1>\n<dl>\n", title, title)
	for _, f := range facts {
		d.put("<dt>%s</dt><dd>%s</dd>\n", html.EscapeString(f[0]), html.EscapeString(f[1]))
	}
	d.put("</dl>\n</header>\n<main>\n")
}

func (d *page) close() {
	if d.open {
		d.put("</pre>\n")
		d.open = false
	}
}

// element adds an element with text.
func (d *page) element(name, class, text string) {
	d.close()
	attribute := ""
	if class != "" {
		attribute = ` class="` + class + `"`
	}
	d.put("<%s%s>%s</%s>\n", name, attribute, html.EscapeString(strings.TrimRight(text, "\n")), name)
}

func (d *page) output(text string) {
	if !d.open {
		d.put("<pre>")
		d.open = true
	}
	_, _ = d.WriteString(html.EscapeString(text)) // errors show at the end
}

func (d *page) cell(code string)    { d.element("pre", "cell", code) }
func (d *page) prompt(text string)  { d.element("blockquote", "", text) }
func (d *page) note(text string)    { d.element("p", "note", text) }
func (d *page) failure(text string) { d.element("pre", "failure", text) }

func (d *page) details(text string) {
	d.close()
	d.put("<details><summary>output</summary><pre>%s</pre></details>\n", html.EscapeString(text))
}

// message adds Markdown, of which headings and blocks of code are shown as such, and
// the rest as it was written.
func (d *page) message(text string) {
	d.close()
	var part []string
	end, element := "", "p"
	flush := func() {
		if s := strings.Trim(strings.Join(part, "\n"), "\n"); s != "" {
			d.element(element, "", s)
		}
		part = part[:0]
	}
	for l := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimLeft(l, " ")
		mark := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`~"))]
		heading := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "#"))]
		switch {
		case end != "" && strings.HasPrefix(mark, end) && strings.TrimSpace(trimmed[len(mark):]) == "":
			flush()
			end, element = "", "p"
		case end != "":
			part = append(part, l)
		case len(mark) >= 3 && strings.Trim(mark, mark[:1]) == "":
			flush()
			end, element = mark, "pre"
		case heading != "" && len(heading) <= 6 && strings.HasPrefix(trimmed[len(heading):], " "):
			flush()
			d.element("h3", "", strings.TrimSpace(trimmed[len(heading):]))
		case trimmed == "":
			flush()
		default:
			part = append(part, l)
		}
	}
	flush()
}

func (d *page) image(mime string, src io.Reader) error {
	d.close()
	d.put(`<p><img alt="image" src="data:%s;base64,`, html.EscapeString(mime))
	if err := encode(d, src); err != nil {
		return err
	}
	d.put("\"></p>\n")
	return nil
}

func (d *page) end(text string) {
	d.close()
	d.put("</main>\n<footer><p class=\"note\">%s</p></footer>\n</body>\n</html>\n", html.EscapeString(text))
}
