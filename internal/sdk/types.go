// Package sdk writes the types of the HTTP API in the languages of the
// SDKs, from the OpenAPI document. The SDKs have no other description of the API,
// so that a change of the API that breaks one of them does not pass its type check.
package sdk

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema is what the document says about a value, as far as SDKs use it.
type schema struct {
	Type        any                `json:"type,omitempty"` // a string, or a list of them
	Enum        []string           `json:"enum,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Values      *schema            `json:"additionalProperties,omitempty"` // nil if there are none
	Ref         string             `json:"$ref,omitempty"`
	Description string             `json:"-"`

	any bool // true in the document: every value
}

// UnmarshalJSON takes the booleans that JSON Schema has instead of objects.
func (s *schema) UnmarshalJSON(b []byte) error {
	var all bool
	if json.Unmarshal(b, &all) == nil {
		*s = schema{any: all}
		return nil
	}
	type plain schema
	if err := json.Unmarshal(b, (*plain)(s)); err != nil {
		return err
	}
	if s.Values != nil && s.Values.isNothing() {
		s.Values = nil
	}
	return nil
}

func (s *schema) isNothing() bool {
	return !s.any && s.Type == nil && s.Ref == "" && s.Properties == nil
}

// object is a type with members.
type object struct {
	name    string
	members []member
}

type member struct {
	name     string
	required bool
	schema   *schema
}

// types are the objects of a document, each once.
type types struct {
	objects []object
	names   map[string]string // by the form of the schema
	used    map[string]bool
}

// unclear are names that say too little without that of the type around them.
var unclear = []string{"Error", "Run", "Group", "Asks"}

// read collects the types of a document. An object that stands inside another gets
// the name of its member, unless an equal object has a name.
func read(document []byte) (*types, error) {
	var doc struct {
		Components struct {
			Schemas map[string]*schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	schemas := doc.Components.Schemas
	if len(schemas) == 0 {
		return nil, fmt.Errorf("read the OpenAPI document: it has no schemas")
	}
	t := &types{names: make(map[string]string), used: make(map[string]bool)}
	order := slices.Sorted(maps.Keys(schemas))
	for _, name := range order {
		if s := schemas[name]; s.Properties != nil {
			t.names[form(s)] = name
			t.used[name] = true
		}
	}
	for _, name := range order {
		if s := schemas[name]; s.Properties != nil && t.names[form(s)] == name {
			t.add(name, s)
		}
	}
	slices.SortFunc(t.objects, func(a, b object) int { return strings.Compare(a.name, b.name) })
	return t, nil
}

func (t *types) add(name string, s *schema) {
	o := object{name: name}
	for _, m := range slices.Sorted(maps.Keys(s.Properties)) {
		o.members = append(o.members, member{m, slices.Contains(s.Required, m), s.Properties[m]})
		t.visit(strings.TrimSuffix(name, "Request"), camel(m), s.Properties[m])
	}
	t.objects = append(t.objects, o)
}

// visit adds the objects inside a member of a type.
func (t *types) visit(of, name string, s *schema) {
	switch {
	case s == nil:
	case s.Properties != nil:
		key := form(s)
		if t.names[key] != "" {
			return
		}
		if t.used[name] || slices.Contains(unclear, name) {
			name = of + name
		}
		for t.used[name] {
			name += "Item"
		}
		t.names[key], t.used[name] = name, true
		t.add(name, s)
	case s.Items != nil:
		t.visit(of, strings.TrimSuffix(name, "s"), s.Items)
	case s.Values != nil:
		t.visit(of, name, s.Values)
	}
}

// form is equal for schemas of the same values.
func form(s *schema) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain fields always encode
	}
	return string(b)
}

func camel(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// language says how a language writes types.
type language struct {
	any, str, integer, number, boolean, null string
	array, dict                              string // with %s for the type of the elements
	enum                                     func([]string) string
	or                                       string
}

// of returns the type of a value.
func (l *language) of(t *types, s *schema) string {
	switch {
	case s == nil || s.any:
		return l.any
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Properties != nil:
		return t.names[form(s)]
	case len(s.Enum) > 0:
		return l.enum(s.Enum)
	case s.Items != nil:
		return fmt.Sprintf(l.array, l.of(t, s.Items))
	case s.Values != nil:
		return fmt.Sprintf(l.dict, l.of(t, s.Values))
	}
	switch kinds := s.Type.(type) {
	case string:
		return l.plain(kinds)
	case []any:
		var list []string
		for _, k := range kinds {
			list = append(list, l.plain(fmt.Sprint(k)))
		}
		return strings.Join(list, l.or)
	}
	return l.any
}

func (l *language) plain(kind string) string {
	switch kind {
	case "string":
		return l.str
	case "integer":
		return l.integer
	case "number":
		return l.number
	case "boolean":
		return l.boolean
	case "null":
		return l.null
	case "object":
		return fmt.Sprintf(l.dict, l.any)
	case "array":
		return fmt.Sprintf(l.array, l.any)
	}
	return l.any
}

// quote quotes the values of an enumeration, which are plain words.
func quote(values []string) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = `"` + v + `"`
	}
	return list
}
