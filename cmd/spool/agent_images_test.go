package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/modeltest"
)

// TestAgentIsShownAnImage has each agent show an image of a prompt to its model. Exec mode
// says that it cannot.
func TestAgentIsShownAnImage(t *testing.T) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 32, 32))); err != nil {
		t.Fatal(err)
	}
	shown := base64.StdEncoding.EncodeToString(picture.Bytes())
	prompt := spool.Prompt{Text: "What is this?", Images: []spool.PromptImage{{MIME: "image/png", Bytes: picture.Bytes()}}}
	eachOf(t, quickWays, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.Say("A grey square.")))
		run := r.start(nil)
		turn, err := run.Prompt(r.ctx, "", prompt)
		if w.config.Mode == agent.ModeExec {
			if !errors.Is(err, spool.ErrUnsupported) || !strings.Contains(err.Error(), "duplex") {
				t.Errorf("exec mode: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s := r.tell(turn)
		if s.done.Outcome != spool.TurnOK || s.done.Answer != "A grey square." {
			t.Errorf("%+v\n%s", s.done, s)
		}
		asked := false
		for _, request := range r.model.Requests() {
			asked = asked || pictureIn(t, request.Body, shown)
		}
		if !asked {
			t.Errorf("the model was not shown the image:\n%s", s)
		}
	})
}

// pictureIn reports whether a string of a JSON value ends in an encoded picture.
func pictureIn(t *testing.T, body json.RawMessage, encoded string) bool {
	t.Helper()
	var find func(v any) bool
	find = func(v any) bool {
		switch v := v.(type) {
		case string:
			return strings.HasSuffix(v, encoded)
		case []any:
			for _, e := range v {
				if find(e) {
					return true
				}
			}
		case map[string]any:
			for _, e := range v {
				if find(e) {
					return true
				}
			}
		}
		return false
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return find(v)
}
