package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumentPromises compares the OpenAPI document with what clients may rely on: the lines of
// testdata/openapi.promises. Each must hold for good, so that -update adds new ones and
// removes none; who breaks a promise on purpose removes its line by hand. A request must not
// need anything new either. Limits of numbers are no promises: docs/limits.md has them.
func TestDocumentPromises(t *testing.T) {
	const file = "testdata/openapi.promises"
	b, err := document("0")
	if err != nil {
		t.Fatal(err)
	}
	now, err := promisesOf(b)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	given := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		given[strings.TrimSuffix(line, "\n")] = true
	}
	for _, broken := range breaks(given, now) {
		t.Errorf("clients break: %s", broken)
	}
	if *update && !t.Failed() {
		lines := strings.Join(slices.Sorted(maps.Keys(now)), "\n") + "\n"
		if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(given) != len(now) {
		t.Errorf("%s has %d of %d promises; go test ./internal/wire/httpapi -run TestDocument -update adds the others", file, len(given), len(now))
	}
}

// breaks are the promises that no longer hold, and what requests need now that they did not.
func breaks(given, now map[string]bool) []string {
	var out []string
	for line := range given {
		if !now[line] {
			out = append(out, line)
		}
	}
	if len(given) == 0 {
		return nil
	}
	for line := range now {
		name, ok := strings.CutSuffix(line, " is needed")
		if !ok || given[line] {
			continue
		}
		// It is new itself, or everything it belongs to is.
		owner, _, _ := strings.Cut(name, " takes ")
		if given[owner] {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// promisesOf are the promises of a document. A request promises that what may be sent today
// may be sent tomorrow, an answer that what is in it stays.
func promisesOf(document []byte) (map[string]bool, error) {
	var doc struct {
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]*schemaNode `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	p := &promiser{lines: make(map[string]bool), schemas: doc.Components.Schemas, done: make(map[string]bool)}
	for path, methods := range doc.Paths {
		for method, raw := range methods {
			var op struct {
				Parameters []struct {
					Name, In string
					Required bool
					Schema   *schemaNode
				}
				Body *struct {
					Content map[string]struct{ Schema *schemaNode }
				} `json:"requestBody"`
				Responses map[string]struct {
					Content map[string]struct{ Schema *schemaNode }
				}
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			name := strings.ToUpper(method) + " " + path
			p.lines[name] = true
			for _, param := range op.Parameters {
				p.takes(name, param.In+" "+param.Name, param.Schema, param.Required)
			}
			if op.Body != nil {
				for media, content := range op.Body.Content {
					p.takes(name, media, content.Schema, false)
				}
			}
			for status, response := range op.Responses {
				if !strings.HasPrefix(status, "2") && status != "101" {
					continue
				}
				p.lines[name+" gives "+status] = true
				for media, content := range response.Content {
					p.gives(name, status+" "+media, content.Schema, true)
				}
			}
		}
	}
	return p.lines, nil
}

// schemaNode is a JSON schema, as far as the document uses it.
type schemaNode struct {
	Ref        string `json:"$ref"`
	Type       any
	Format     string
	Enum       []any
	Items      *schemaNode
	Properties map[string]*schemaNode
	Required   []string
	Additional json.RawMessage `json:"additionalProperties"`
}

// UnmarshalJSON reads a schema; true is one that everything matches.
func (s *schemaNode) UnmarshalJSON(b []byte) error {
	if string(b) == "true" {
		return nil
	}
	type plain schemaNode
	return json.Unmarshal(b, (*plain)(s))
}

// promiser collects promises. A schema with a name has its own lines, once for requests and
// once for answers.
type promiser struct {
	lines   map[string]bool
	schemas map[string]*schemaNode
	done    map[string]bool
}

func (p *promiser) takes(owner, path string, s *schemaNode, needed bool) {
	line := owner + " takes " + path
	p.lines[line+": "+p.kind(s, true)] = true
	if needed {
		p.lines[line+" is needed"] = true
	} else {
		p.lines[line+" may be left out"] = true
	}
	if s == nil {
		return
	}
	for _, value := range s.Enum {
		p.lines[fmt.Sprintf("%s = %q", line, fmt.Sprint(value))] = true
	}
	p.inside(s, path, func(path string, s *schemaNode, needed bool) { p.takes(owner, path, s, needed) })
}

func (p *promiser) gives(owner, path string, s *schemaNode, always bool) {
	line := owner + " gives " + path
	p.lines[line+": "+p.kind(s, false)] = true
	if always {
		p.lines[line+" always"] = true
	}
	if s != nil {
		p.inside(s, path, func(path string, s *schemaNode, always bool) { p.gives(owner, path, s, always) })
	}
}

// inside calls do for what is in a value.
func (p *promiser) inside(s *schemaNode, path string, do func(path string, s *schemaNode, required bool)) {
	for name, member := range s.Properties {
		do(path+"."+name, member, slices.Contains(s.Required, name))
	}
	if s.Items != nil {
		do(path+"[]", s.Items, true)
	}
	var more schemaNode
	if len(s.Additional) > 0 && s.Additional[0] == '{' && json.Unmarshal(s.Additional, &more) == nil {
		do(path+".*", &more, true)
	}
}

// kind is what a value is. The schema that it refers to gets its own lines.
func (p *promiser) kind(s *schemaNode, request bool) string {
	if s == nil {
		return "anything"
	}
	name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	if name == "" {
		if s.Type == nil {
			return "anything"
		}
		return strings.TrimSpace(fmt.Sprint(s.Type) + " " + s.Format)
	}
	if key := fmt.Sprint(name, request); !p.done[key] {
		p.done[key] = true
		owner := "schema " + name
		p.lines[owner] = true
		if request {
			p.takes(owner, "it", p.schemas[name], true)
		} else {
			p.gives(owner, "it", p.schemas[name], true)
		}
	}
	return name
}

// TestBreaks checks that what breaks clients is found, and that what does not is not.
func TestBreaks(t *testing.T) {
	const before = `{"paths":{"/a":{"get":{"parameters":[{"name":"q","in":"query","schema":{"type":"string","enum":["x","y"]}}],
		"requestBody":{"content":{"application/json":{"schema":{"type":"object","properties":{"m":{"type":"string"}}}}}},
		"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}}}},
		"components":{"schemas":{"A":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"list":{"type":"array","items":{"type":"integer"}}}}}}}`
	given, err := promisesOf([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new, want string }{
		{"the same", "", "", ""},
		{"an operation is gone", `"/a"`, `"/b"`, "GET /a"},
		{"a parameter is gone", `"name":"q"`, `"name":"p"`, "GET /a takes query q: string"},
		{"a parameter is needed", `"in":"query"`, `"in":"query","required":true`, "GET /a takes query q may be left out"},
		{"a new parameter", `[{"name":"q"`, `[{"name":"n","in":"query","schema":{"type":"string"}},{"name":"q"`, ""},
		{"a new parameter is needed", `[{"name":"q"`, `[{"name":"n","in":"query","required":true,"schema":{"type":"string"}},{"name":"q"`, "GET /a takes query n is needed"},
		{"a value is gone", `["x","y"]`, `["x"]`, `GET /a takes query q = "y"`},
		{"a new value", `["x","y"]`, `["x","y","z"]`, ""},
		{"a member of the request is another", `"m":{"type":"string"}`, `"m":{"type":"integer"}`, "GET /a takes application/json.m: string"},
		{"a new member is needed", `"properties":{"m"`, `"required":["n"],"properties":{"n":{"type":"string"},"m"`, "GET /a takes application/json.n is needed"},
		{"the status is another", `"200"`, `"201"`, "GET /a gives 200"},
		{"a member of the answer is gone", `"list":`, `"lists":`, "schema A gives it.list: array"},
		{"a member may be missing", `"required":["id"],`, ``, "schema A gives it.id always"},
		{"an element is another", `"items":{"type":"integer"}`, `"items":{"type":"string"}`, "schema A gives it.list[]: integer"},
		{"a new member of the answer", `"list":`, `"more":{"type":"string"},"list":`, ""},
	} {
		now, err := promisesOf([]byte(strings.Replace(before, tt.old, tt.new, 1)))
		if err != nil {
			t.Fatal(err)
		}
		got := breaks(given, now)
		if tt.want == "" && len(got) > 0 || tt.want != "" && !slices.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
