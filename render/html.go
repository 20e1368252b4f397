package render

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
)

const (
	// maxHTML limits the HTML that is converted: a conversion needs a multiple
	// of its size in memory.
	maxHTML = 256 << 10
	// maxCells limits the cells of a table: every row becomes as long as the
	// longest, and a short attribute can make one cell span any number of
	// columns.
	maxCells = 100_000
)

// fromHTML converts HTML to Markdown. HTML that is too large or cannot be
// converted becomes a short description.
func fromHTML(s string) (text string, markdown bool) {
	if len(s) > maxHTML {
		return fmt.Sprintf("[text/html of %d bytes]", len(s)), false
	}
	text, err := convert(s)
	if err != nil {
		return fmt.Sprintf("[text/html of %d bytes]", len(s)), false
	}
	return text, true
}

// convert converts HTML and turns a panic of the parser into an error, because
// the HTML is untrusted.
func convert(s string) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("convert HTML: %v", p)
		}
	}()
	doc, err := html.Parse(strings.NewReader(s))
	if err != nil {
		return "", fmt.Errorf("convert HTML: %w", err)
	}
	if cells(doc) > maxCells {
		dropSpans(doc)
	}
	if n := cells(doc); n > maxCells {
		return "", fmt.Errorf("convert HTML: a table of %d cells", n)
	}
	c := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin()))
	b, err := c.ConvertNode(doc)
	return string(b), err
}

// cells returns an upper bound of the cells of all tables: rows times the
// longest possible row.
func cells(doc *html.Node) int {
	rows, longest, spanned := 0, 0, 0
	for n := range doc.Descendants() {
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "tr":
			length := 0
			for range n.ChildNodes() {
				length++
			}
			rows++
			longest = max(longest, length)
		default:
			spanned = min(spanned+spans(n), maxCells)
		}
	}
	return max(rows, 1)*longest + max(rows, 1)*spanned
}

// spans returns how many extra cells of a table an element spans, up to a
// limit.
func spans(n *html.Node) int {
	product := 1
	for _, a := range n.Attr {
		if a.Key != "colspan" && a.Key != "rowspan" {
			continue
		}
		// A value that is not a number counts as one, as in the converter.
		if v, err := strconv.Atoi(a.Val); err == nil && v > 1 {
			product *= min(v, maxCells+1)
		}
	}
	return product - 1
}

func dropSpans(doc *html.Node) {
	for n := range doc.Descendants() {
		kept := n.Attr[:0]
		for _, a := range n.Attr {
			if a.Key != "colspan" && a.Key != "rowspan" {
				kept = append(kept, a)
			}
		}
		n.Attr = kept
	}
}
