package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Limits of one message. They bound the memory and time that a peer can make
// us spend on it.
const (
	MaxMessage = 64 << 20 // bytes
	MaxValues  = 262_144  // JSON values
	maxDepth   = 127      // nested arrays and objects
)

// Message is one JSON-RPC message. Its members are not decoded and point into
// the bytes it was parsed from.
type Message struct {
	ID     json.RawMessage // as sent; nil in a notification
	Method string          // of a request or notification
	Params json.RawMessage
	Result json.RawMessage // only in a response
	Error  *Error          // only in a response
}

// Parse checks a whole message (syntax, UTF-8, number of values, depth and
// duplicate keys) and splits it into its members. It ignores a "jsonrpc" member
// and unknown members.
func Parse(b []byte) (Message, error) {
	s := scanner{b: b}
	if !utf8.Valid(b) {
		return Message{}, errors.New("invalid UTF-8")
	}
	var m Message
	var errObj json.RawMessage
	var hasMethod, hasResult bool
	err := s.document(func(key string, value json.RawMessage) error {
		switch key {
		case "id":
			if err := checkID(value); err != nil {
				return err
			}
			m.ID = value
		case "method":
			if value[0] != '"' {
				return errors.New("method must be a string")
			}
			hasMethod = true
			return json.Unmarshal(value, &m.Method)
		case "params":
			m.Params = value
		case "result":
			m.Result, hasResult = value, true
		case "error":
			errObj = value
		}
		return nil
	})
	if err != nil {
		return Message{}, err
	}
	switch {
	case hasMethod:
		m.Result = nil
	case hasResult && m.ID != nil:
	case errObj != nil && m.ID != nil:
		m.Error = new(Error)
		if err := json.Unmarshal(errObj, m.Error); err != nil {
			return Message{}, fmt.Errorf("error object: %w", err)
		}
	default:
		return Message{}, errors.New("neither a request, a notification nor a response")
	}
	return m, nil
}

func checkID(v json.RawMessage) error {
	if v[0] == '"' {
		return nil
	}
	if _, err := strconv.ParseInt(string(v), 10, 64); err != nil {
		return errors.New("id must be a string or a 64-bit integer")
	}
	return nil
}

// scanner checks JSON text in one pass without building values.
type scanner struct {
	b      []byte
	i      int
	values int
}

func (s *scanner) fail(what string) error {
	line := 1 + bytes.Count(s.b[:min(s.i, len(s.b))], []byte("\n"))
	col := s.i - bytes.LastIndexByte(s.b[:min(s.i, len(s.b))], '\n')
	return fmt.Errorf("%s at line %d column %d", what, line, col)
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// document scans text that is one object, and calls member for each member.
func (s *scanner) document(member func(key string, value json.RawMessage) error) error {
	s.space()
	if s.i == len(s.b) {
		return s.fail("EOF while parsing a value")
	}
	if s.b[s.i] != '{' {
		return s.fail("expected an object")
	}
	s.values++
	if err := s.object(1, member); err != nil {
		return err
	}
	s.space()
	if s.i != len(s.b) {
		return s.fail("trailing characters")
	}
	return nil
}

// value scans a value that is nested in depth arrays and objects.
func (s *scanner) value(depth int) error {
	s.values++
	if s.values > MaxValues {
		return s.fail(fmt.Sprintf("more than %d values", MaxValues))
	}
	if s.i == len(s.b) {
		return s.fail("EOF while parsing a value")
	}
	switch c := s.b[s.i]; {
	case depth == maxDepth && (c == '{' || c == '['):
		return s.fail("recursion limit exceeded")
	case c == '{':
		return s.object(depth+1, nil)
	case c == '[':
		return s.array(depth + 1)
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
			s.i += len(word)
			return nil
		}
	}
	return s.fail("expected value")
}

// manyKeys is the number of keys above which a map finds duplicates faster than
// a list.
const manyKeys = 16

func (s *scanner) object(depth int, member func(string, json.RawMessage) error) error {
	s.i++ // {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		return nil
	}
	var few [manyKeys]string
	keys := few[:0]
	var many map[string]bool
	for {
		s.space()
		if s.i == len(s.b) {
			return s.fail("EOF while parsing an object")
		}
		if s.b[s.i] != '"' {
			return s.fail("key must be a string")
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		duplicate := many[key]
		for _, k := range keys {
			duplicate = duplicate || k == key
		}
		if duplicate {
			return s.fail(fmt.Sprintf("duplicate field `%.64s`", key))
		}
		switch {
		case many != nil:
			many[key] = true
		case len(keys) < manyKeys:
			keys = append(keys, key)
		default:
			many = map[string]bool{key: true}
		}
		s.space()
		if s.i == len(s.b) || s.b[s.i] != ':' {
			return s.fail("expected `:`")
		}
		s.i++
		s.space()
		start := s.i
		if err := s.value(depth); err != nil {
			return err
		}
		if member != nil {
			if err := member(key, s.b[start:s.i:s.i]); err != nil {
				return s.fail(err.Error())
			}
		}
		s.space()
		if s.i == len(s.b) {
			return s.fail("EOF while parsing an object")
		}
		s.i++
		switch s.b[s.i-1] {
		case ',':
		case '}':
			return nil
		default:
			return s.fail("expected `,` or `}`")
		}
	}
}

func (s *scanner) array(depth int) error {
	s.i++ // [
	s.space()
	if s.i < len(s.b) && s.b[s.i] == ']' {
		s.i++
		return nil
	}
	for {
		s.space()
		if err := s.value(depth); err != nil {
			return err
		}
		s.space()
		if s.i == len(s.b) {
			return s.fail("EOF while parsing a list")
		}
		s.i++
		switch s.b[s.i-1] {
		case ',':
		case ']':
			return nil
		default:
			return s.fail("expected `,` or `]`")
		}
	}
}

// key scans a string and returns it decoded.
func (s *scanner) key() (string, error) {
	start := s.i
	escaped, err := s.str()
	if err != nil {
		return "", err
	}
	if !escaped {
		return string(s.b[start+1 : s.i-1]), nil
	}
	var out string
	err = json.Unmarshal(s.b[start:s.i], &out)
	return out, err
}

// str scans a string and reports whether it has escapes.
func (s *scanner) str() (escaped bool, err error) {
	s.i++ // "
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		case c < 0x20:
			return false, s.fail("control character in a string")
		default:
			s.i++
		}
	}
	return false, s.fail("EOF while parsing a string")
}

// escape scans one escape sequence. It refuses a lone surrogate, which stands
// for no character; replacing it would change the text.
func (s *scanner) escape() error {
	if s.i+1 >= len(s.b) {
		return s.fail("EOF while parsing a string")
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return nil
	case 'u':
	default:
		return s.fail("invalid escape")
	}
	r, ok := s.hex(s.i)
	switch {
	case !ok, r >= 0xdc00 && r <= 0xdfff:
		return s.fail("invalid escape")
	case r >= 0xd800 && r <= 0xdbff:
		low, ok := s.hex(s.i + 6)
		if !ok || low < 0xdc00 || low > 0xdfff {
			return s.fail("lone surrogate in a string")
		}
		s.i += 6
	}
	s.i += 6
	return nil
}

// hex reads the \uXXXX at i.
func (s *scanner) hex(i int) (uint64, bool) {
	if i+6 > len(s.b) || s.b[i] != '\\' || s.b[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.b[i+2:i+6]), 16, 16)
	return n, err == nil
}

func (s *scanner) number() error {
	digits := func() int {
		start := s.i
		for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i - start
	}
	if s.b[s.i] == '-' {
		s.i++
	}
	zero := s.i < len(s.b) && s.b[s.i] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return s.fail("invalid number")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if digits() == 0 {
			return s.fail("invalid number")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if digits() == 0 {
			return s.fail("invalid number")
		}
	}
	return nil
}
