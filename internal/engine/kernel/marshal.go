package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// The interpreter and this process speak in Python's marshal format, version
// 2: it is built into every interpreter, carries bytes as they are, and user
// code cannot break it by changing a module.

// dict is a message.
type dict = map[string]any

// appendValue appends the marshalled form of a value made of nil, bool, int,
// int64, string, []byte, []string, []any and dict.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(b, 'T')
		}
		return append(b, 'F')
	case int:
		return appendInt(b, int64(v))
	case int64:
		return appendInt(b, v)
	case string:
		v = strings.ToValidUTF8(v, "\uFFFD")
		return append(appendLen(append(b, 'u'), len(v)), v...)
	case []byte:
		return append(appendLen(append(b, 's'), len(v)), v...)
	case []string:
		b = appendLen(append(b, '['), len(v))
		for _, s := range v {
			b = appendValue(b, s)
		}
		return b
	case []any:
		b = appendLen(append(b, '['), len(v))
		for _, e := range v {
			b = appendValue(b, e)
		}
		return b
	case dict:
		b = append(b, '{')
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			b = appendValue(appendValue(b, k), v[k])
		}
		return append(b, '0')
	}
	return append(b, 'N')
}

func appendLen(b []byte, n int) []byte { return binary.LittleEndian.AppendUint32(b, uint32(n)) }

func appendInt(b []byte, v int64) []byte {
	if v >= math.MinInt32 && v <= math.MaxInt32 {
		return binary.LittleEndian.AppendUint32(append(b, 'i'), uint32(int32(v)))
	}
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	var digits []uint16 // of 15 bits
	for ; u > 0; u >>= 15 {
		digits = append(digits, uint16(u&0x7fff))
	}
	n := int32(len(digits))
	if v < 0 {
		n = -n
	}
	b = binary.LittleEndian.AppendUint32(append(b, 'l'), uint32(n))
	for _, d := range digits {
		b = binary.LittleEndian.AppendUint16(b, d)
	}
	return b
}

// appendFrame appends a message with its length.
func appendFrame(b []byte, m dict) []byte {
	at := len(b)
	b = appendValue(append(b, 0, 0, 0, 0), m)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

var errFrame = errors.New("malformed message")

// decodeValue reads a message. It gives nil, bool, int64, *big.Int, float64,
// string, []byte, []any and dict. Strings are UTF-8 whatever came in. The
// bytes it gives share memory with b.
func decodeValue(b []byte) (any, error) {
	d := decoder{b: b}
	v, err := d.value(0)
	if err == nil && len(d.b) > 0 {
		err = fmt.Errorf("%w: %d bytes too many", errFrame, len(d.b))
	}
	return v, err
}

// maxDepth bounds how deep values are nested: Python has its own bound, but
// who writes here may not be Python.
const maxDepth = 200

type decoder struct{ b []byte }

func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > len(d.b) {
		return nil, fmt.Errorf("%w: it ends too soon", errFrame)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b, nil
}

func (d *decoder) len() (int, error) {
	b, err := d.take(4)
	if err != nil {
		return 0, err
	}
	return int(int32(binary.LittleEndian.Uint32(b))), nil
}

// null marks the end of a dict.
type null struct{}

func (d *decoder) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: nested too deep", errFrame)
	}
	kind, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch kind[0] {
	case '0':
		return null{}, nil
	case 'N':
		return nil, nil
	case 'T':
		return true, nil
	case 'F':
		return false, nil
	case 'i':
		n, err := d.len()
		return int64(n), err
	case 'l':
		return d.long()
	case 'g':
		b, err := d.take(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	}
	n := 0
	if kind[0] != '{' {
		var err error
		if n, err = d.len(); err != nil {
			return nil, err
		}
	}
	switch kind[0] {
	case 'u', 't':
		b, err := d.take(n)
		return validText(b), err
	case 's':
		return d.take(n)
	case '[', '(':
		if n < 0 || n > len(d.b) { // each takes a byte at least
			return nil, fmt.Errorf("%w: a list of %d", errFrame, n)
		}
		list := make([]any, 0, min(n, 1024))
		for range n {
			v, err := d.value(depth + 1)
			if err != nil {
				return nil, err
			}
			if _, end := v.(null); end {
				return nil, fmt.Errorf("%w: nothing in a list", errFrame)
			}
			list = append(list, v)
		}
		return list, nil
	case '{':
		return d.dict(depth)
	}
	return nil, fmt.Errorf("%w: type %q", errFrame, kind)
}

func (d *decoder) dict(depth int) (dict, error) {
	m := make(dict)
	for {
		k, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if _, end := k.(null); end {
			return m, nil
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := k.(string)
		if _, end := v.(null); end || !ok {
			return nil, fmt.Errorf("%w: a key or its value", errFrame)
		}
		m[name] = v
	}
}

func (d *decoder) long() (any, error) {
	n, err := d.len()
	if err != nil {
		return nil, err
	}
	negative := n < 0
	if negative {
		n = -n
	}
	b, err := d.take(2 * n)
	if err != nil {
		return nil, err
	}
	if n > 64 {
		return nil, fmt.Errorf("%w: a number of %d digits", errFrame, n)
	}
	v := new(big.Int)
	for i := n - 1; i >= 0; i-- {
		v.Lsh(v, 15)
		v.Or(v, big.NewInt(int64(binary.LittleEndian.Uint16(b[2*i:])&0x7fff)))
	}
	if negative {
		v.Neg(v)
	}
	if v.IsInt64() {
		return v.Int64(), nil
	}
	return v, nil
}

// validText makes UTF-8 of what Python marshals: the same, but that a lone
// surrogate is written like any character. It is shown as Python shows it.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(len(b) + 16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r != utf8.RuneError || n > 1:
			s.Write(b[:n])
		case len(b) >= 3 && b[0] == 0xED && b[1] >= 0xA0 && b[1] <= 0xBF && b[2]&0xC0 == 0x80:
			n = 3
			fmt.Fprintf(&s, `\u%04x`, 0xD000|int(b[1]&0x3F)<<6|int(b[2]&0x3F))
		default:
			s.WriteRune(utf8.RuneError)
		}
		b = b[n:]
	}
	return s.String()
}

// Accessors for messages whose fields may be missing or of any type.

func text(m dict, key string) string {
	s, _ := m[key].(string)
	return s
}

func number(m dict, key string) int64 {
	n, _ := m[key].(int64)
	return n
}

func flag(m dict, key string) bool {
	b, _ := m[key].(bool)
	return b
}
