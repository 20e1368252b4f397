package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/lazyregexp"
)

// everyProblem are the problems that every operation with a subject has.
var everyProblem = []string{"invalid", "unknown_member", "unauthenticated", "expired", "forbidden", "bad_host", "bad_origin", "cross_site", "busy", "rate", "too_many_failures", "internal", "closing"}

// document returns the OpenAPI document that describes the table.
func document(version string) ([]byte, error) {
	d := &documenter{schemas: make(map[string]any)}
	paths := make(map[string]map[string]any)
	for i := range operations() {
		op := &operations()[i]
		described, err := d.operation(op)
		if err != nil {
			return nil, fmt.Errorf("describe %s %s: %w", op.method, op.pattern, err)
		}
		if paths[op.pattern] == nil {
			paths[op.pattern] = make(map[string]any)
		}
		paths[op.pattern][strings.ToLower(op.method)] = described
	}
	codes := make([]string, len(problemKinds))
	for i, k := range problemKinds {
		codes[i] = k.code
	}
	doc := map[string]any{
		"openapi": "3.1.1",
		"info": map[string]any{
			"title": "Spool", "version": version,
			"description": "Runs of processes, Python kernels, sandboxes and agents, each with one ordered, replayable log. " +
				"A cursor is the number of the last event that a client has: come back with it after any disconnect and see every later event exactly once. " +
				"Problem codes: " + strings.Join(codes, ", ") + ".",
		},
		"paths":    paths,
		"security": []any{map[string]any{"bearer": []string{}}, map[string]any{"cookie": []string{}, "key": []string{}}},
		"components": map[string]any{
			"schemas": d.schemas,
			"securitySchemes": map[string]any{
				"bearer": map[string]any{"type": "http", "scheme": "bearer"},
				"cookie": map[string]any{"type": "apiKey", "in": "cookie", "name": "spool_PORT", "description": "Half of the credentials of a page; the other half is its key"},
				"key":    map[string]any{"type": "apiKey", "in": "header", "name": access.KeyHeader, "description": "The key of a page, beside its cookie"},
			},
		},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// documenter collects the schemas that operations refer to.
type documenter struct{ schemas map[string]any }

var pathParamRE = lazyregexp.New(`\{(\w+)\}`)

func (d *documenter) operation(op *operation) (map[string]any, error) {
	o := map[string]any{"operationId": op.name, "summary": op.summary}
	if op.open {
		o["security"] = []any{}
	} else if op.scope != "" {
		o["description"] = "Needs the scope " + string(op.scope) + "."
	}
	var parameters []any
	for _, m := range pathParamRE().FindAllStringSubmatch(op.pattern, -1) {
		schema := map[string]any{"type": "string"}
		if m[1] == "seq" {
			schema = map[string]any{"type": "integer", "minimum": 1}
		}
		parameters = append(parameters, map[string]any{"name": m[1], "in": "path", "required": true, "schema": schema})
	}
	for i := range op.query {
		parameters = append(parameters, op.query[i].describe())
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	if op.body != nil {
		schema, err := d.schema(op.body, true)
		if err != nil {
			return nil, err
		}
		content := map[string]any{formJSON: map[string]any{"schema": schema}}
		if op.bytes {
			content["application/octet-stream"] = map[string]any{}
		}
		o["requestBody"] = map[string]any{"required": true, "content": content}
	}
	responses, err := d.responses(op)
	if err != nil {
		return nil, err
	}
	o["responses"] = responses
	return o, nil
}

// responses describes a success, and the problems by their status.
func (d *documenter) responses(op *operation) (map[string]any, error) {
	content := make(map[string]any)
	if op.answer != nil {
		schema, err := d.schema(op.answer, false)
		if err != nil {
			return nil, err
		}
		content[formJSON] = map[string]any{"schema": schema}
	}
	for _, form := range op.forms {
		content[form] = map[string]any{}
	}
	success := map[string]any{"description": "Success"}
	if len(content) > 0 {
		success["content"] = content
	}
	responses := map[string]any{strconv.Itoa(op.status): success}
	if op.status == http.StatusCreated {
		responses["200"] = map[string]any{"description": "It existed: the request was repeated", "content": content}
	}
	if slices.Contains(op.forms, formSSE) && op.answer != nil {
		responses["204"] = map[string]any{"description": "The log is complete and the client has all of it"}
	}
	if op.name == "getRun" {
		responses["304"] = map[string]any{"description": "Nothing changed"}
	}
	if slices.Contains(op.forms, "*/*") {
		responses["206"] = map[string]any{"description": "A part", "content": content}
		responses["304"] = map[string]any{"description": "Nothing changed"}
	}
	problem, err := d.schema(Problem{}, false)
	if err != nil {
		return nil, err
	}
	codes := slices.Clone(op.problems)
	if !op.open {
		codes = append(codes, everyProblem...)
	} else {
		codes = append(codes, "internal", "unknown_member", "bad_host", "bad_origin", "cross_site", "closing")
	}
	if op.body != nil {
		codes = append(codes, "bad_json", "too_large", "media_type")
	}
	byStatus := make(map[int][]string)
	for _, code := range codes {
		status := problemOf(code).status
		if !slices.Contains(byStatus[status], code) {
			byStatus[status] = append(byStatus[status], code)
		}
	}
	for status, codes := range byStatus {
		slices.Sort(codes)
		responses[strconv.Itoa(status)] = map[string]any{
			"description": strings.Join(codes, ", "),
			"content":     map[string]any{"application/problem+json": map[string]any{"schema": problem}},
		}
	}
	return responses, nil
}

func (p *param) describe() map[string]any {
	schema := map[string]any{}
	switch p.kind {
	case numberParam:
		schema["type"], schema["minimum"] = "integer", p.min
	case flagParam:
		schema["type"], schema["enum"] = "string", []string{"", "0", "1", "false", "true"}
	case timeParam:
		schema["type"], schema["format"] = "string", "date-time"
	case textParam:
		schema["type"] = "string"
		if len(p.oneOf) > 0 {
			schema["enum"] = p.oneOf
		}
	}
	if p.many {
		schema = map[string]any{"type": "array", "items": schema}
	}
	return map[string]any{"name": p.name, "in": "query", "description": p.doc, "schema": schema}
}

// schema describes a type. A named type becomes a component, under another name
// where it is sent by clients: what they send has no further members, what they
// receive may gain some.
func (d *documenter) schema(v any, sent bool) (any, error) {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Map {
		return map[string]any{"type": "object"}, nil
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: typeSchemas()})
	if err != nil {
		return nil, err
	}
	finish(s, sent)
	if t.Name() == "" {
		return s, nil
	}
	name := t.Name()
	if sent && !strings.HasSuffix(name, "Request") {
		name += "Request"
	}
	d.schemas[name] = s
	return map[string]any{"$ref": "#/components/schemas/" + name}, nil
}

// typeSchemas are the types whose JSON is not that of their fields.
func typeSchemas() map[reflect.Type]*jsonschema.Schema {
	integer := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer"} }
	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	least := 0.0
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[time.Duration]():   {Type: "integer", Description: "Milliseconds"},
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[spool.Seq]():       {Type: "integer", Minimum: &least},
		reflect.TypeFor[spool.Event](): {
			Type: "object", Required: []string{"run", "seq", "time", "kind"},
			Properties: map[string]*jsonschema.Schema{
				"run": text(), "seq": integer(), "time": {Type: "string", Format: "date-time"}, "kind": text(), "turn": integer(),
				"stream": {Type: "string", Enum: []any{"stdout", "stderr", "pty"}},
				"text":   {Type: "string", Description: "The bytes, if they are UTF-8"},
				"base64": {Type: "string", ContentEncoding: "base64", Description: "The bytes, if they are not UTF-8"},
				"data":   {Description: "What kind says"},
			},
			PropertyOrder: []string{"run", "seq", "time", "kind", "turn", "stream", "text", "base64", "data"},
		},
	}
}

// finish opens what is received, and drops the null that slices and maps of Go may
// be: we send none.
func finish(s *jsonschema.Schema, sent bool) {
	if s == nil {
		return
	}
	if !sent && s.Properties != nil {
		s.AdditionalProperties = nil
	}
	if len(s.Types) == 2 && slices.Contains(s.Types, "null") {
		i := slices.IndexFunc(s.Types, func(t string) bool { return t != "null" })
		s.Type, s.Types = s.Types[i], nil
	}
	for _, p := range s.Properties {
		finish(p, sent)
	}
	finish(s.Items, sent)
	if a := s.AdditionalProperties; a != nil && a.Not == nil {
		finish(a, sent)
	}
}
