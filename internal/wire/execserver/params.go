package execserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// decode reads a method's params into the struct v points to and checks that
// the required members are present. Its errors have the wording that codex
// clients know. Member names are matched exactly, and null is a valid value
// only for pointers and raw members.
func decode(params json.RawMessage, v any, required ...string) error {
	params = bytes.TrimSpace(params)
	if len(params) == 0 {
		params = json.RawMessage("null")
	}
	if len(required) == 0 && string(params) == "null" {
		return nil
	}
	if params[0] != '{' {
		return wrongType(params, "an object")
	}
	have := make(map[string]json.RawMessage, fewMembers) // one that is nil gets space for many
	if err := fastjson.Unmarshal(params, &have); err != nil {
		return rpc.Errorf(rpc.CodeInvalidParams, "%s", err)
	}
	into := reflect.ValueOf(v).Elem()
	for _, m := range membersOf(into.Type()) {
		if raw, ok := have[m.name]; ok {
			if err := decodeMember(raw, into.FieldByIndex(m.index)); err != nil {
				return err
			}
		}
	}
	for _, name := range required {
		if _, ok := have[name]; !ok {
			return rpc.Errorf(rpc.CodeInvalidParams, "missing field `%s`", name)
		}
	}
	return nil
}

// fewMembers is how many members params have, of most requests.
const fewMembers = 8

// member maps a member of a JSON object to a struct field.
type member struct {
	name  string
	index []int
}

// members caches the members of params types, because computing them dominates
// the cost of a start here.
var members sync.Map // reflect.Type to []member

func membersOf(t reflect.Type) []member {
	if known, ok := members.Load(t); ok {
		return known.([]member)
	}
	var all []member
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			all = append(all, member{name, field.Index})
		}
	}
	members.Store(t, all)
	return all
}

func decodeMember(raw json.RawMessage, into reflect.Value) error {
	t := into.Type()
	if string(raw) == "null" && t.Kind() != reflect.Pointer && t != reflect.TypeFor[json.RawMessage]() {
		return wrongType(raw, kindText(t))
	}
	var err error
	if fastjson.Unmarshal(raw, into.Addr().Interface()) != nil {
		// Decode again with encoding/json, whose error decides.
		into.SetZero()
		if err = json.Unmarshal(raw, into.Addr().Interface()); err != nil {
			return invalidParams(raw, err)
		}
	}
	if !bytes.Contains(raw, []byte("null")) {
		return nil
	}
	// Inside lists and maps of strings encoding/json accepts null as "".
	switch into.Interface().(type) {
	case []string:
		var all []*string
		if err = json.Unmarshal(raw, &all); err == nil {
			for _, s := range all {
				if s == nil {
					return wrongType(json.RawMessage("null"), "a string")
				}
			}
		}
	case map[string]string:
		var all map[string]*string
		if err = json.Unmarshal(raw, &all); err == nil {
			for _, s := range all {
				if s == nil {
					return wrongType(json.RawMessage("null"), "a string")
				}
			}
		}
	}
	return err
}

// decodeNone accepts only absent, null and empty params.
func decodeNone(params json.RawMessage) error {
	switch s := strings.Join(strings.Fields(string(params)), ""); s {
	case "", "null", "{}":
		return nil
	}
	return wrongType(bytes.TrimSpace(params), "unit")
}

// invalidParams describes the error of decoding raw.
func invalidParams(raw json.RawMessage, err error) error {
	var rerr *rpc.Error
	var te *json.UnmarshalTypeError
	switch {
	case errors.As(err, &rerr):
		return rerr
	case !errors.As(err, &te) || te.Offset > int64(len(raw)):
		return rpc.Errorf(rpc.CodeInvalidParams, "%s", strings.TrimPrefix(err.Error(), "json: "))
	case strings.HasPrefix(te.Value, "number") && isInteger(te.Type):
		return rpc.Errorf(rpc.CodeInvalidParams, "invalid number")
	}
	// The offset points behind a scalar, and somewhere into a larger value.
	value := raw[:te.Offset]
	switch te.Value {
	case "string":
		value = value[stringStart(value):]
	case "bool":
		value = value[bytes.LastIndexAny(value, "tf"):]
	case "array":
		value = json.RawMessage("[")
	case "object":
		value = json.RawMessage("{")
	default:
		value = json.RawMessage("0")
	}
	return wrongType(value, kindText(te.Type))
}

// stringStart returns the start of the string literal that b ends with.
func stringStart(b []byte) int {
	for i := len(b) - 2; i >= 0; i-- {
		if b[i] != '"' {
			continue
		}
		escapes := len(b[:i]) - len(bytes.TrimRight(b[:i], `\`))
		if escapes%2 == 0 {
			return i
		}
	}
	return 0
}

func wrongType(value json.RawMessage, expected string) error {
	var got string
	switch value[0] {
	case 'n':
		got = "null"
	case '{':
		got = "map"
	case '[':
		got = "sequence"
	case 't':
		got = "boolean `true`"
	case 'f':
		got = "boolean `false`"
	case '"':
		var s string
		_ = json.Unmarshal(value, &s) // it was parsed before
		got = fmt.Sprintf("string %q", s)
	default:
		got = "number"
	}
	return rpc.Errorf(rpc.CodeInvalidParams, "invalid type: %s, expected %s", got, expected)
}

func isInteger(t reflect.Type) bool {
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
}

// kindText names the expected type of a member.
func kindText(t reflect.Type) string {
	switch k := t.Kind(); {
	case k == reflect.Pointer:
		return kindText(t.Elem())
	case k == reflect.String:
		return "a string"
	case k == reflect.Bool:
		return "a boolean"
	case isInteger(t):
		return strings.NewReplacer("uint", "u", "int", "i").Replace(k.String())
	case k == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "a string"
	case k == reflect.Slice:
		return "a sequence"
	case k == reflect.Map:
		return "a map"
	}
	return "an object"
}
