package acpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/spool-run/spool/internal/npmtest"
)

// sdkTS is the protocol's SDK for TypeScript, with the schema of the protocol. Its program
// runs what it reads.
var sdkTS = npmtest.Program{
	Name:     "acp-sdk-2.4.0",
	Packages: []string{"@agentclientprotocol/sdk@2.4.0", "zod@4.6.7"},
	File:     "run",
	Finish: func(dir string) error {
		script := "#!/bin/sh\ncd \"$(dirname \"$(readlink -f \"$0\")\")\" && exec node --input-type=module -\n"
		return os.WriteFile(filepath.Join(dir, "run"), []byte(script), 0o755)
	},
}

// schemas are those of the versions of the protocol.
var schemas = map[string]func() (*jsonschema.Resolved, error){
	"v1": sync.OnceValues(func() (*jsonschema.Resolved, error) { return schema("v1") }),
	"v2": sync.OnceValues(func() (*jsonschema.Resolved, error) { return schema("v2") }),
}

// schema is that of an object whose members are messages of the protocol, by the names of
// their types.
func schema(version string) (*jsonschema.Resolved, error) {
	run, err := sdkTS.Cached()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(run), "node_modules", "@agentclientprotocol", "sdk", "schema", version, "schema.json"))
	if err != nil {
		return nil, err
	}
	var whole struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	members := make(object)
	for name := range whole.Defs {
		members[name] = object{"$ref": "#/$defs/" + name}
	}
	text, err = json.Marshal(object{"$defs": whole.Defs, "properties": members, "additionalProperties": false})
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// validate compares a part of a message with its type in the schema of the protocol.
func validate(t *testing.T, version, name string, data []byte) {
	t.Helper()
	s, err := schemas[version]()
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(object{name: v}); err != nil {
		t.Errorf("%s: %v\n%s", name, err, data)
	}
}

// sent are the parts of the schema of what an agent sends by itself.
var sent = map[string]string{
	"session/update": "SessionNotification", "$/cancel_request": "CancelRequestNotification",
	"session/request_permission": "RequestPermissionRequest", "elicitation/create": "CreateElicitationRequest",
}

// results are the types of results, by a member that only they have; others are those
// without one. results2 are those of version 2.
var (
	results  = map[string]string{"": "LoadSessionResponse", "protocolVersion": "InitializeResponse", "sessionId": "NewSessionResponse", "sessions": "ListSessionsResponse", "stopReason": "PromptResponse"}
	results2 = map[string]string{"": "ResumeSessionResponse", "protocolVersion": "InitializeResponse", "sessionId": "NewSessionResponse", "sessions": "ListSessionsResponse", "messageId": "PromptResponse"}
)

// checkSchema compares all that a client got with the schema of the protocol. Results are
// told apart by their members.
func checkSchema(t *testing.T, p *peer) {
	t.Helper()
	if p.many {
		return
	}
	all, _ := p.messages()
	version, results := "v1", results
	if len(all) > 0 && strings.Contains(all[0].raw, `"protocolVersion":2`) {
		version, results = "v2", results2
	}
	for _, m := range all {
		var parts struct {
			Version string          `json:"jsonrpc"`
			Params  json.RawMessage `json:"params"`
			Result  json.RawMessage `json:"result"`
			Error   json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal([]byte(m.raw), &parts); err != nil || parts.Version != "2.0" {
			t.Errorf("no message of JSON-RPC 2.0: %s", m.raw)
		}
		name, data := sent[m.Method], parts.Params
		switch {
		case parts.Error != nil:
			name, data = "Error", parts.Error
		case parts.Result != nil:
			name, data = results[""], parts.Result
			for member, part := range results {
				if member != "" && bytes.Contains(data, []byte(`"`+member+`":`)) && part != "NewSessionResponse" || member == "sessionId" && bytes.HasPrefix(data, []byte(`{"sessionId"`)) {
					name = part
				}
			}
		}
		if m.Method == "session/update" && version == "v2" {
			name = "UpdateSessionNotification"
		}
		validate(t, version, name, data)
	}
}
