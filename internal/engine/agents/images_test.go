package agents

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// pngOf is something that begins as a PNG does.
func pngOf(size int) spool.PromptImage {
	b := make([]byte, size)
	copy(b, "\x89PNG\r\n\x1a\n")
	return spool.PromptImage{MIME: "image/png", Bytes: b}
}

func TestImagesOfPromptsAreBounded(t *testing.T) {
	many := func(n int) []spool.PromptImage { return slices.Repeat([]spool.PromptImage{pngOf(16)}, n) }
	for _, tt := range []struct {
		name   string
		limit  int64
		images []spool.PromptImage
		want   string // empty if they are taken
	}{
		{"one", 0, many(1), ""},
		{"most", 0, many(MaxImages), ""},
		{"too many", 0, many(MaxImages + 1), "21 images"},
		{"as large as may be", 0, []spool.PromptImage{pngOf(agent.DefaultImageBytes)}, ""},
		{"too large together", 0, []spool.PromptImage{pngOf(agent.DefaultImageBytes), pngOf(16)}, "show smaller ones"},
		{"another limit", 31, many(2), "it may have 31"},
		{"none allowed", -1, many(1), "it may have 0"},
		{"no bytes", 0, []spool.PromptImage{{MIME: "image/png"}}, "no bytes"},
		{"a blob", 0, []spool.PromptImage{{MIME: "image/png", Digest: "sha256:0", Size: 3}}, "no bytes"},
		{"another type", 0, []spool.PromptImage{{MIME: "image/svg+xml", Bytes: []byte("<svg/>")}}, "PNG, JPEG, GIF and WebP"},
		{"not what it says", 0, []spool.PromptImage{{MIME: "image/jpeg", Bytes: pngOf(16).Bytes}}, "no image/jpeg"},
	} {
		data, err := json.Marshal(spool.Prompt{Images: tt.images})
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodePrompt(spool.Input{Kind: spool.InputPrompt, Data: data}, tt.limit)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (!errors.Is(err, spool.ErrInvalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := parseConfig(&spool.Spec{Config: agent.Config{Agent: agent.Codex, ImageBytes: agent.MaxImageBytes + 1}.Spec().Config}); err == nil {
		t.Error("a limit above the largest is taken")
	}
}

// TestExecModeTakesNoImages checks what an agent without images, and a mode without them, say.
func TestExecModeTakesNoImages(t *testing.T) {
	data, err := json.Marshal(spool.Prompt{Text: "look", Images: []spool.PromptImage{pngOf(16)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{agent.Codex: "use duplex mode", agent.OpenCode: "opencode cannot be shown images"} {
		r := converse(t, newEngine(t), agent.Config{Agent: name, Mode: agent.ModeExec, Program: fakeCLI(t, "exit 0")})
		err := r.s.Takes(spool.Input{Kind: spool.InputPrompt, Data: data})
		if !errors.Is(err, spool.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestACPImages checks that an agent which can be shown images gets them, and that the turn of
// one which cannot says so.
func TestACPImages(t *testing.T) {
	prompt := spool.Prompt{Text: "look", Images: []spool.PromptImage{pngOf(16)}}
	r := acpTalk(t, "images", agent.Config{})
	d := r.done(r.show(prompt))
	want := `"prompt":[{"data":"iVBORw0KGgoAAAAAAAAAAA==","mimeType":"image/png","type":"image"},{"text":"look","type":"text"}]`
	if d.Outcome != spool.TurnOK || !strings.Contains(d.Answer, want) {
		t.Errorf("%+v", d)
	}
	if s := enginetest.Data[agent.Started](t, r.until(spool.KindStarted)); !slices.Contains(s.Capabilities, "images") {
		t.Errorf("started with %q", s.Capabilities)
	}

	r = acpTalk(t, "no_images", agent.Config{})
	if d := r.done(r.show(prompt)); d.Outcome != spool.TurnError || d.ErrorClass != agent.ClassUnsupported || d.Error != "actor cannot be shown images" {
		t.Errorf("%+v", d)
	}
	if s := enginetest.Data[agent.Started](t, r.until(spool.KindStarted)); slices.Contains(s.Capabilities, "images") {
		t.Errorf("started with %q", s.Capabilities)
	}
	if d := r.done(r.say("read")); d.Answer != "only text" {
		t.Errorf("%+v", d)
	}
}

// TestCapabilities checks what agents are known to take before they run.
func TestCapabilities(t *testing.T) {
	for _, tt := range []struct {
		config agent.Config
		images bool
	}{
		{agent.Config{Agent: agent.Codex}, true},
		{agent.Config{Agent: agent.Claude, Mode: agent.ModeDuplex}, true},
		{agent.Config{Agent: agent.Pi}, true},
		{agent.Config{Agent: agent.Codex, Mode: agent.ModeExec}, false},
		{agent.Config{Agent: agent.OpenCode}, false},
		{agent.Config{Agent: agent.ACP, Command: []string{"x"}}, false}, // it says so when it runs
		{agent.Config{Agent: "nobody"}, false},
	} {
		if got := slices.Contains(Capabilities(&tt.config), "images"); got != tt.images {
			t.Errorf("%+v takes images: %v", tt.config, got)
		}
	}
}
