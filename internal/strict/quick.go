package strict

import (
	"reflect"
	"slices"
)

// quick checks the keys of JSON as [walker] does, in one pass over the bytes. It
// gives up where it meets anything unusual, such as an escape in a key: then the
// walker judges, and has the words for an error. It does not check the syntax of
// values, which [json.Unmarshal] does.
type quick struct {
	b     []byte
	i     int
	depth int
}

// Limits of what quick looks at.
const (
	quickDepth = 32 // objects and arrays in each other
	quickKeys  = 64 // of an object, which are compared with each other
)

// keysFit reports whether all keys of data are known and given once. False means
// that it cannot tell.
func keysFit(data []byte, t reflect.Type) bool {
	q := quick{b: data}
	return q.value(t) && q.next() == 0
}

// next skips white space and returns the next byte, or 0 at the end.
func (q *quick) next() byte {
	for ; q.i < len(q.b); q.i++ {
		switch q.b[q.i] {
		case ' ', '\t', '\n', '\r':
		default:
			return q.b[q.i]
		}
	}
	return 0
}

// value passes over a value of a type, which is nil if it does not matter.
func (q *quick) value(t reflect.Type) bool {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch q.next() {
	case '{':
		return q.object(t)
	case '[':
		var elem reflect.Type
		if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
			elem = t.Elem()
		}
		return q.list(']', func() bool { return q.value(elem) })
	case '"':
		return q.text()
	}
	from := q.i
	for q.i < len(q.b) && isWord(q.b[q.i]) {
		q.i++
	}
	return q.i > from
}

// isWord reports whether c is part of a number, true, false or null.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// list passes over the members between brackets.
func (q *quick) list(end byte, member func() bool) bool {
	if q.depth == quickDepth {
		return false
	}
	q.depth++
	q.i++
	if q.next() == end {
		q.depth--
		q.i++
		return true
	}
	for {
		if !member() {
			return false
		}
		c := q.next()
		q.i++
		if c == end {
			q.depth--
			return true
		}
		if c != ',' {
			return false
		}
	}
}

func (q *quick) object(t reflect.Type) bool {
	var keys []key
	var of reflect.Type
	if t != nil {
		keys = keysOf(t)
		if t.Kind() == reflect.Map {
			of = t.Elem()
		}
	}
	var room [16][]byte
	seen := room[:0]
	return q.list('}', func() bool {
		if q.next() != '"' {
			return false
		}
		from := q.i + 1
		if !q.text() {
			return false
		}
		name := q.b[from : q.i-1]
		if len(seen) == quickKeys || slices.ContainsFunc(name, func(c byte) bool { return c == '\\' || c >= 0x80 }) {
			return false
		}
		for _, other := range seen {
			if string(other) == string(name) {
				return false
			}
		}
		seen = append(seen, name)
		if q.next() != ':' {
			return false
		}
		q.i++
		if keys != nil {
			i := slices.IndexFunc(keys, func(k key) bool { return k.name == string(name) })
			if i < 0 {
				return false
			}
			return q.value(keys[i].of)
		}
		return q.value(of)
	})
}

// text passes over a string.
func (q *quick) text() bool {
	for q.i++; q.i < len(q.b); q.i++ {
		switch q.b[q.i] {
		case '"':
			q.i++
			return true
		case '\\':
			q.i++
		}
	}
	return false
}
