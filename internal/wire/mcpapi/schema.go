package mcpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/strict"
)

// Limits of arguments.
const (
	// Neither maxWait nor maxBudget has a flag: both are in the schemas of the tools, which
	// clients keep, and a call chooses less.

	// maxWait is how long a call waits at most, in milliseconds: many clients give up
	// after a minute.
	maxWait = 50_000
	// maxBudget is how many characters of output a result has at most.
	maxBudget     = 100_000
	defaultBudget = 8_000
)

// Arguments that several tools take. Each tool has a complete schema, because some
// clients do not follow references.
var (
	runArg    = `"run":{"type":"string","minLength":1,"description":"Run id, unique prefix, or name."}`
	untilArg  = `"until":{"enum":["end","output","quiet","match","ask","turn"],"description":"What ends the wait early%s."}`
	matchArg  = `"match":{"type":"string","maxLength":1000,"description":"RE2 pattern for until=match."}`
	quietArg  = `"quiet_ms":{"type":"integer","minimum":50,"maximum":30000,"default":300,"description":"Silence that until=quiet waits for."}`
	budgetArg = fmt.Sprintf(`"budget":{"type":"integer","minimum":100,"maximum":%d,"default":%d,"description":"Characters of output to return."}`, maxBudget, defaultBudget)
	idArg     = `"id":{"type":"string","pattern":"^[a-z0-9]{1,128}$","description":"Repeating a call with this id does nothing new."}`
	cwdArg    = `"cwd":{"type":"string","description":"Working directory."}`
)

// waitArg is the argument wait_ms with a default.
func waitArg(defaultMs int) string {
	return fmt.Sprintf(`"wait_ms":{"type":"integer","minimum":0,"maximum":%d,"default":%d,"description":"How long to wait at most."}`, maxWait, defaultMs)
}

// until is the argument until with a default, if it has one.
func until(value string) string {
	if value == "" {
		return fmt.Sprintf(untilArg, "")
	}
	return strings.Replace(fmt.Sprintf(untilArg, ""), `"enum"`, `"default":"`+value+`","enum"`, 1)
}

// object is the schema of arguments.
func object(required string, properties ...string) json.RawMessage {
	text := `{"type":"object","additionalProperties":false,`
	if required != "" {
		text += `"required":["` + strings.ReplaceAll(required, " ", `","`) + `"],`
	}
	return json.RawMessage(text + `"properties":{` + strings.Join(properties, ",") + `}}`)
}

// viewSchema is the schema of a [RunView].
var viewSchema = json.RawMessage(`{"type":"object","required":["run","state","next","text"],"properties":{
"run":{"type":"string"},"name":{"type":"string"},"state":{"enum":["running","exited","closed"]},
"outcome":{"type":"object","properties":{"kind":{"enum":["exited","failed","unknown"]},"code":{"type":"integer"},"signal":{"type":"string"},"reason":{"type":"string"}}},
"why":{"enum":["end","output","match","quiet","ask","turn","time"]},"next":{"type":"integer"},"text":{"type":"string"},
"omitted":{"type":"object","properties":{"bytes":{"type":"integer"},"lines":{"type":"integer"},"from":{"type":"integer"},"to":{"type":"integer"}}},
"asks":{"type":"array","items":{"type":"object","properties":{"ask":{"type":"integer"},"kind":{"type":"string"},"prompt":{"type":"string"},"options":{"type":"array","items":{"type":"string"}},"retype":{"type":"boolean"}}}},
"turn":{"type":"integer"},"done":{"type":"object"},"images":{"type":"integer"},"url":{"type":"string"}}}`)

// resolve prepares a schema for checks.
func resolve(schema json.RawMessage) *jsonschema.Resolved {
	var s jsonschema.Schema
	err := json.Unmarshal(schema, &s)
	if err == nil {
		var resolved *jsonschema.Resolved
		if resolved, err = s.Resolve(nil); err == nil {
			return resolved
		}
	}
	panic("mcpapi: " + err.Error() + ": " + string(schema)) // a mistake in this package
}

// decode checks arguments and decodes them, with defaults. The error is
// [spool.ErrInvalid], for a model that reads it.
func decode(raw json.RawMessage, schema *jsonschema.Resolved, args any) error {
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	// It names unknown arguments, and what was probably meant.
	if err := strict.Unmarshal(raw, args, "arguments"); err != nil {
		return fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	var values any
	if err := json.Unmarshal(raw, &values); err != nil {
		return fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	if err := schema.ApplyDefaults(&values); err != nil {
		return fmt.Errorf("apply defaults: %w", err)
	}
	if err := schema.Validate(values); err != nil {
		return fmt.Errorf("%w: %s", spool.ErrInvalid, reason(err))
	}
	all, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return json.Unmarshal(all, args)
}

// reason is the innermost cause of an error of a schema, with the place.
func reason(err error) string {
	text := err.Error()
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	if i := strings.LastIndex(text, "/properties/"); i >= 0 {
		name, rest, _ := strings.Cut(text[i+len("/properties/"):], ": ")
		return "argument " + name + ": " + rest
	}
	return err.Error()
}
