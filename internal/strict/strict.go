// Package strict decodes JSON that a person or another program wrote for us to
// act on: specs and the configurations of engines. [encoding/json] passes over
// unknown and repeated keys and takes keys in any case, so that a misspelled
// limit would be no limit. Here each of these is an error that names the key
// and, where one is similar, the key that was probably meant.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Unmarshal decodes data into v, a pointer to a struct. what names the whole
// value in errors, such as "kernel config".
func Unmarshal(data []byte, v any, what string) error {
	t := reflect.TypeOf(v).Elem()
	if !keysFit(data, t) {
		w := walker{dec: json.NewDecoder(bytes.NewReader(data)), what: what}
		if err := w.value(t, ""); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(err, what)
	}
	return nil
}

// explain says in plain words which value has the wrong type.
func explain(err error, what string) error {
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	if te.Field == "" {
		return fmt.Errorf("%s must be %s, not %s", what, kindName(te.Type), article(te.Value))
	}
	return fmt.Errorf("%q in %s must be %s, not %s", te.Field, what, kindName(te.Type), article(te.Value))
}

func article(value string) string {
	switch kind, _, _ := strings.Cut(value, " "); kind {
	case "array", "object":
		return "an " + kind
	case "number":
		return value // with its text
	case "bool":
		return "a boolean"
	default:
		return "a " + kind
	}
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number of type " + t.Kind().String()
}

// walker goes through JSON along a type.
type walker struct {
	dec  *json.Decoder
	what string
}

// value checks the next value. Where it does not fit the type, the check is
// left to [json.Unmarshal].
func (w *walker) value(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	keys := keysOf(t)
	switch {
	case keys != nil, t.Kind() == reflect.Map, t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
	default:
		return w.skip()
	}
	token, err := w.dec.Token()
	if err != nil {
		return w.syntax(err)
	}
	switch token {
	case json.Delim('{'):
		return w.object(t, keys, path)
	case json.Delim('['):
		var elem reflect.Type
		if t.Kind() == reflect.Slice {
			elem = t.Elem()
		}
		for w.dec.More() {
			if err := w.member(elem, path); err != nil {
				return err
			}
		}
		_, err = w.dec.Token()
		return w.syntax(err)
	}
	return nil
}

func (w *walker) object(t reflect.Type, keys []key, path string) error {
	seen := make(map[string]bool)
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return w.syntax(err)
		}
		name := token.(string) // the decoder accepts no other key
		at := name
		if path != "" {
			at = path + "." + name
		}
		if seen[name] {
			return fmt.Errorf("key %q is given twice in %s", at, w.what)
		}
		seen[name] = true
		var of reflect.Type
		switch {
		case keys != nil:
			i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
			if i < 0 {
				return w.unknown(at, path, name, keys)
			}
			of = keys[i].of
		case t.Kind() == reflect.Map:
			of = t.Elem()
		}
		if err := w.member(of, at); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return w.syntax(err)
}

// member checks a value whose type is nil if it does not matter.
func (w *walker) member(t reflect.Type, path string) error {
	if t == nil {
		return w.skip()
	}
	return w.value(t, path)
}

func (w *walker) skip() error {
	var any json.RawMessage
	return w.syntax(w.dec.Decode(&any))
}

func (w *walker) syntax(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", w.what, err)
	}
	return nil
}

func (w *walker) unknown(at, path, name string, keys []key) error {
	err := &UnknownError{Key: at, what: w.what}
	for _, k := range keys {
		err.keys = append(err.keys, k.name)
	}
	if near, ok := Nearest(name, err.keys); ok {
		err.Near = near
		if path != "" {
			err.Near = path + "." + near
		}
	}
	return err
}

// UnknownError is the error of a key that there is not.
type UnknownError struct {
	Key  string // with the keys that lead to it
	Near string // the key that was probably meant; empty if none is similar
	what string
	keys []string // that there are
}

func (e *UnknownError) Error() string {
	if e.Near != "" {
		return fmt.Sprintf("unknown key %q in %s; did you mean %q?", e.Key, e.what, e.Near)
	}
	return fmt.Sprintf("unknown key %q in %s; the keys are %s", e.Key, e.what, strings.Join(e.keys, ", "))
}

// key is one key of an object and the type of its value.
type key struct {
	name string
	of   reflect.Type
}

var known sync.Map // of a reflect.Type to its []key

// keysOf returns the keys of a struct, and nil for what is not encoded as an
// object of its fields.
func keysOf(t reflect.Type) []key {
	if t.Kind() != reflect.Struct {
		return nil
	}
	if keys, ok := known.Load(t); ok {
		return keys.([]key)
	}
	var keys []key
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			keys = append(keys, key{name, f.Type})
		}
	}
	known.Store(t, keys)
	return keys
}
