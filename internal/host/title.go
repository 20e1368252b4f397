package host

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// maxTitle is the size of a title in bytes.
const maxTitle = 240

// noteTurn updates the description of a run with an event that begins or ends a
// turn.
func noteTurn(info *spool.Info, e *spool.Event) {
	switch e.Kind {
	case spool.KindDone:
		var done struct {
			Outcome spool.TurnOutcome `json:"outcome"`
		}
		if json.Unmarshal(e.Data, &done) == nil && done.Outcome != "" {
			info.TurnOutcome = done.Outcome
		}
	case spool.KindInput:
		if !beginsTurn(e) {
			return
		}
		var said struct {
			Data struct {
				Code   string `json:"code"`
				Module string `json:"module"`
				File   string `json:"file"`
				Text   string `json:"text"`
				Silent bool   `json:"silent"`
			} `json:"data"`
		}
		if json.Unmarshal(e.Data, &said) != nil || said.Data.Silent {
			return
		}
		text := said.Data.Code + said.Data.Text
		switch {
		case said.Data.Module == "":
		case said.Data.File != "":
			text = said.Data.File // a directory or an archive
		default:
			text = "-m " + said.Data.Module
		}
		if title := firstLine(text); title != "" {
			info.Title = title
		}
	}
}

// firstLine returns the first line of a text that is not blank, cut to maxTitle.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(line) > maxTitle {
			line = line[:maxTitle]
			for len(line) > 0 && !utf8.ValidString(line) {
				line = line[:len(line)-1]
			}
		}
		return strings.ToValidUTF8(line, "\ufffd")
	}
	return ""
}
