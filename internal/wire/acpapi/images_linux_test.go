package acpapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/acpapi"
)

// TestImages has an agent be shown an image, and clients of both versions load it from the log.
func TestImages(t *testing.T) {
	b := openHost(t)
	p := connect(t, server(b), nil)
	session := p.open()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 9, 9))); err != nil {
		t.Fatal(err)
	}
	data := base64.StdEncoding.EncodeToString(picture.Bytes())
	p.call("session/prompt", object{"sessionId": session, "prompt": []object{
		{"type": "text", "text": "look "}, {"type": "image", "mimeType": "image/png", "data": data},
	}})
	if want := fmt.Sprintf("agent_message_chunk 1: [image/png of %d bytes]look ", picture.Len()); !slices.Contains(p.told(session), want) {
		t.Errorf("the client was told %q, want %q", p.told(session), want)
	}
	loading := object{"sessionId": session, "cwd": "/", "mcpServers": []any{}}
	block := `{"type":"image","mimeType":"image/png","data":"` + data + `"}`
	one := connect(t, server(b), nil)
	one.call("session/load", loading)
	if told := one.told(session); !slices.Contains(told, "user_message_chunk look ") || !slices.Contains(told, "user_message_chunk "+block) {
		t.Errorf("the session was loaded as %q", told)
	}
	two := connect2(t, server2(b))
	two.call("session/resume", object{"sessionId": session, "cwd": "/", "mcpServers": []any{}, "replayFrom": object{"type": "start"}})
	if told := two.told(session); !slices.ContainsFunc(told, func(s string) bool {
		return strings.HasPrefix(s, "user_message ") && strings.Contains(s, `{"type":"text","text":"look "},`+block)
	}) {
		t.Errorf("the session was loaded as %q", told)
	}
}

// TestImagesAreOffered checks that an editor is told whether the agent may be shown images.
func TestImagesAreOffered(t *testing.T) {
	for _, tt := range []struct {
		opts acpapi.Options
		want bool
	}{
		{acpapi.Options{Config: agent.Config{Agent: agent.ACP}}, false},
		{acpapi.Options{Config: agent.Config{Agent: agent.ACP}, Images: true}, true},
		{acpapi.Options{Config: agent.Config{Agent: agent.Codex, ImageBytes: -1}, Images: true}, false},
	} {
		tt.opts.Version2 = true
		for version, path := range map[int]string{1: `"promptCapabilities":{"audio":false,"embeddedContext":true,"image":true}`, 2: `"image":{}`} {
			p, done := dial(t, acpapi.New(tt.opts))
			p.call("initialize", object{"protocolVersion": version, "info": object{"name": "peer", "version": "1"}, "clientCapabilities": object{}})
			if got := strings.Contains(p.String(), path); got != tt.want {
				t.Errorf("version %d, %+v: %s", version, tt.opts.Config, p)
			}
			done()
		}
	}
}
