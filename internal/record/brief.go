package record

import (
	"bytes"
	"time"
	"unicode/utf8"
)

// Brief is the part of a description that an index has. Its texts point into the
// description.
type Brief struct {
	ID, Name, Engine, State []byte
	Labels                  []BriefLabel
	Created, Ended          time.Time
	Outcome                 []byte // its kind; nil without one
	Workspace               bool
}

// BriefLabel is a label.
type BriefLabel struct{ Name, Value []byte }

// Decode reads the Data of a description's record, as [DecodeDescription] does, for an
// index that is built of a million of them. It reports false for one that is not as
// [AppendDescription] writes most, such as one with escaped characters: then only
// DecodeDescription tells. It uses the memory of b.Labels again.
func (b *Brief) Decode(data []byte) bool {
	*b = Brief{Labels: b.Labels[:0]}
	if len(data) < 2 || data[0] != '{' {
		return false
	}
	rest, more := data[1:], true
	for more {
		var key []byte
		var ok bool
		if key, rest, ok = cutKey(rest); !ok {
			return false
		}
		switch string(key) {
		case "id":
			b.ID, rest, ok = cutText(rest)
		case "name":
			b.Name, rest, ok = cutText(rest)
		case "engine":
			b.Engine, rest, ok = cutText(rest)
		case "state":
			b.State, rest, ok = cutText(rest)
		case "created":
			b.Created, rest, ok = cutTime(rest)
		case "ended":
			b.Ended, rest, ok = cutTime(rest)
		case "labels":
			rest, ok = b.cutLabels(rest)
		case "outcome":
			b.Outcome, rest, ok = cutOutcome(rest)
		case "workspace":
			b.Workspace = !bytes.HasPrefix(rest, []byte("null"))
			rest, ok = cutAny(rest)
		default:
			rest, ok = cutAny(rest)
		}
		if !ok || len(rest) == 0 {
			return false
		}
		more = rest[0] == ','
		if !more && rest[0] != '}' {
			return false
		}
		rest = rest[1:]
	}
	return len(rest) == 0
}

// cutLabels reads an object of texts.
func (b *Brief) cutLabels(rest []byte) ([]byte, bool) {
	if len(b.Labels) > 0 || len(rest) < 2 || rest[0] != '{' || rest[1] == '}' {
		return rest, false
	}
	for {
		var l BriefLabel
		var ok bool
		if l.Name, rest, ok = cutKey(rest[1:]); !ok {
			return rest, false
		}
		if l.Value, rest, ok = cutText(rest); !ok || len(rest) == 0 {
			return rest, false
		}
		b.Labels = append(b.Labels, l)
		switch rest[0] {
		case ',':
		case '}':
			return rest[1:], true
		default:
			return rest, false
		}
	}
}

// cutOutcome reads an object that begins with the kind.
func cutOutcome(rest []byte) (kind, after []byte, ok bool) {
	const begin = `{"kind":`
	if !bytes.HasPrefix(rest, []byte(begin)) {
		return nil, rest, false
	}
	if kind, _, ok = cutText(rest[len(begin):]); !ok {
		return nil, rest, false
	}
	after, ok = cutAny(rest)
	return kind, after, ok
}

// cutKey reads the name of a member and its colon.
func cutKey(rest []byte) (key, after []byte, ok bool) {
	key, after, ok = cutText(rest)
	if !ok || len(after) == 0 || after[0] != ':' {
		return nil, rest, false
	}
	return key, after[1:], true
}

// cutText reads a string without escapes.
func cutText(rest []byte) (text, after []byte, ok bool) {
	if len(rest) < 2 || rest[0] != '"' {
		return nil, rest, false
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 {
		return nil, rest, false
	}
	text = rest[1 : 1+end : 1+end]
	ascii := true
	for _, c := range text {
		if c == '\\' || c < 0x20 {
			return nil, rest, false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return text, rest[end+2:], ascii || utf8.Valid(text)
}

// cutTime reads a time.
func cutTime(rest []byte) (t time.Time, after []byte, ok bool) {
	text, after, ok := cutText(rest)
	if !ok {
		return t, rest, false
	}
	return t, after, t.UnmarshalText(text) == nil
}

// cutAny passes over a value.
func cutAny(rest []byte) (after []byte, ok bool) {
	depth := 0
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '"':
			for i++; i < len(rest) && rest[i] != '"'; i++ {
				if rest[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 { // ends what the value is in
				return rest[i:], i > 0
			}
		case ',':
			if depth == 0 {
				return rest[i:], i > 0
			}
		}
	}
	return nil, false
}
