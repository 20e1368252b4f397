package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// messageKind is the kind of a message of the server.
type messageKind int

const (
	kindOther  messageKind = iota // a notification that is ignored
	kindResult                    // an answer
	kindError                     // an error answer
	kindOutput                    // process/output
	kindExited                    // process/exited
	kindClosed                    // process/closed
)

// message holds the decoded parts of a message. Its slices point into the
// message and are valid as long as it is.
type message struct {
	kind     messageKind
	id       int64  // of an answer
	body     []byte // of an answer, raw
	process  []byte
	seq      uint64
	exitCode int64
	chunk    []byte // base64
}

var errSyntax = errors.New("not a JSON message")

// scanMessage decodes a message without a JSON decoder: with one, the client
// would be the bottleneck and every server would look alike. It validates only
// the parts that it reads.
func scanMessage(b []byte, m *message) error {
	*m = message{}
	var method, params []byte
	var hasMethod bool
	rest, err := scanObject(b, func(key, value []byte) error {
		var err error
		switch string(key) {
		case "id":
			m.id, err = strconv.ParseInt(string(value), 10, 64)
		case "method":
			hasMethod = true
			method, err = unquote(value)
		case "params":
			params = value
		case "result":
			m.kind, m.body = kindResult, value
		case "error":
			m.kind, m.body = kindError, value
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(skipSpace(rest)) > 0 {
		return fmt.Errorf("%w: data after the object", errSyntax)
	}
	if !hasMethod {
		return nil
	}
	switch string(method) {
	case "process/output":
		m.kind = kindOutput
	case "process/exited":
		m.kind = kindExited
	case "process/closed":
		m.kind = kindClosed
	default:
		m.kind = kindOther
		return nil
	}
	_, err = scanObject(params, m.setParam)
	return err
}

func (m *message) setParam(key, value []byte) (err error) {
	switch string(key) {
	case "processId":
		m.process, err = unquote(value)
	case "seq":
		m.seq, err = strconv.ParseUint(string(value), 10, 64)
	case "exitCode":
		m.exitCode, err = strconv.ParseInt(string(value), 10, 64)
	case "chunk":
		m.chunk, err = unquote(value)
	}
	return err
}

// decodeChunk decodes the output of a message into dst, which it grows as
// needed, and returns it.
func (m *message) decodeChunk(dst []byte) ([]byte, error) {
	n := base64.StdEncoding.DecodedLen(len(m.chunk))
	if cap(dst) < n {
		dst = make([]byte, n)
	}
	n, err := decodeBase64(dst[:n], m.chunk)
	return dst[:n], err
}

// scanObject calls member for each member of the object at the start of b and
// returns the rest. Keys are unquoted, values are raw.
func scanObject(b []byte, member func(key, value []byte) error) (rest []byte, err error) {
	b = skipSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("%w: not an object", errSyntax)
	}
	b = skipSpace(b[1:])
	if len(b) > 0 && b[0] == '}' {
		return b[1:], nil
	}
	for {
		raw, after, err := cutString(b)
		if err != nil {
			return nil, err
		}
		key, err := unquote(raw)
		if err != nil {
			return nil, err
		}
		b = skipSpace(after)
		if len(b) == 0 || b[0] != ':' {
			return nil, fmt.Errorf("%w: missing colon", errSyntax)
		}
		value, after, err := cutValue(skipSpace(b[1:]))
		if err != nil {
			return nil, err
		}
		if err := member(key, value); err != nil {
			return nil, fmt.Errorf("member %q: %w", key, err)
		}
		b = skipSpace(after)
		if len(b) == 0 {
			return nil, fmt.Errorf("%w: unterminated object", errSyntax)
		}
		switch b[0] {
		case '}':
			return b[1:], nil
		case ',':
			b = skipSpace(b[1:])
		default:
			return nil, fmt.Errorf("%w: %q between members", errSyntax, b[0])
		}
	}
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// cutString splits b after the string at its start, quotes included.
func cutString(b []byte) (raw, rest []byte, err error) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, fmt.Errorf("%w: not a string", errSyntax)
	}
	for at := 1; ; {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return nil, nil, fmt.Errorf("%w: unterminated string", errSyntax)
		}
		at += n + 1
		slashes := 0
		for b[at-2-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return b[:at], b[at:], nil
		}
	}
}

// cutValue splits b after the value at its start.
func cutValue(b []byte) (raw, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, fmt.Errorf("%w: missing value", errSyntax)
	}
	switch b[0] {
	case '"':
		return cutString(b)
	case '{', '[':
		return cutNested(b)
	}
	n := bytes.IndexAny(b, ",}] \t\r\n")
	if n < 0 {
		n = len(b)
	}
	if n == 0 {
		return nil, nil, fmt.Errorf("%w: missing value", errSyntax)
	}
	return b[:n], b[n:], nil
}

// cutNested splits b after the object or array at its start.
func cutNested(b []byte) (raw, rest []byte, err error) {
	depth := 0
	for at := 0; at < len(b); {
		switch b[at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return b[:at+1], b[at+1:], nil
			}
		case '"':
			s, _, err := cutString(b[at:])
			if err != nil {
				return nil, nil, err
			}
			at += len(s)
			continue
		}
		at++
	}
	return nil, nil, fmt.Errorf("%w: unterminated value", errSyntax)
}

// unquote returns the text of a string, in place unless it has escapes.
func unquote(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, fmt.Errorf("%w: not a string", errSyntax)
	}
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return []byte(s), nil
}
