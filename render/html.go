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
	// maxHTML bounds the HTML that is converted: it takes a multiple of
	// its size in memory.
	maxHTML = 256 << 10
	// maxCells bounds the cells that a table is made to have: every row
	// becomes as long as the longest, and a short attribute can make a
	// cell stand for any number of them.
	maxCells = 100_000
)

// fromHTML makes HTML into Markdown. What is too large or cannot be converted
// is only described: nobody reads it as it is.
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

// convert keeps what untrusted HTML makes a parser do from ending the program.
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

// cells bounds how many cells all tables would have, each as many rows as
// there are and as long as the longest could be.
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

// spans is how many cells of a table an element stands for beyond one, up to
// a bound.
func spans(n *html.Node) int {
	product := 1
	for _, a := range n.Attr {
		if a.Key != "colspan" && a.Key != "rowspan" {
			continue
		}
		// What is no number counts for one, as it does to the converter.
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
