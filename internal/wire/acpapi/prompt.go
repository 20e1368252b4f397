package acpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// block is a content block of a prompt.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	MIME     string `json:"mimeType"` // of an image
	Data     []byte `json:"data"`     // of an image, in base64
	Name     string `json:"name"`
	Title    string `json:"title"`
	URI      string `json:"uri"`
	Resource struct {
		URI  string  `json:"uri"`
		Text *string `json:"text"`
	} `json:"resource"`
}

// promptOf is a prompt for an agent: its text has links as Markdown, and what is embedded in
// fences, with its address.
func promptOf(blocks []json.RawMessage) (spool.Prompt, error) {
	var out strings.Builder
	var p spool.Prompt
	for i, raw := range blocks {
		var b block
		if err := json.Unmarshal(raw, &b); err != nil {
			return p, rpc.Errorf(rpc.CodeInvalidParams, "block %d of the prompt: %v", i+1, err)
		}
		switch b.Type {
		case "text":
			out.WriteString(b.Text)
		case "image":
			p.Images = append(p.Images, spool.PromptImage{MIME: b.MIME, Bytes: b.Data})
		case "resource_link":
			fmt.Fprintf(&out, "[%s](%s)", cmp.Or(b.Title, b.Name, b.URI), b.URI)
		case "resource":
			if b.Resource.Text == nil {
				fmt.Fprintf(&out, "[%s](%[1]s)", b.Resource.URI)
				continue
			}
			fmt.Fprintf(&out, "\n[%s](%[1]s)\n%s\n", b.Resource.URI, fenced(*b.Resource.Text))
		default:
			return p, rpc.Errorf(rpc.CodeInvalidParams, "block %d of the prompt is of type %q: Spool gives agents text, images, links and embedded text", i+1, b.Type)
		}
	}
	p.Text = out.String()
	if strings.TrimSpace(p.Text) == "" {
		if p.Text = ""; len(p.Images) == 0 {
			return p, rpc.Errorf(rpc.CodeInvalidParams, "the prompt is empty")
		}
	}
	if len(p.Text) > agent.MaxPrompt {
		return p, rpc.Errorf(rpc.CodeInvalidParams, "the prompt has %d bytes, and agents take %d", len(p.Text), agent.MaxPrompt)
	}
	return p, nil
}

// takesImages reports whether the agent may be shown images.
func (o *Options) takesImages() bool { return o.Images && o.Config.ImageBytes >= 0 }

// fenced is text as a block of code, in a fence that it does not contain.
func fenced(text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "\n" + strings.TrimSuffix(text, "\n") + "\n" + fence
}
