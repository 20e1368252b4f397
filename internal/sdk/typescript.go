package sdk

import (
	"fmt"
	"strings"
)

var typescriptTypes = language{
	any: "unknown", str: "string", integer: "number", number: "number", boolean: "boolean", null: "null",
	array: "Array<%s>", dict: "Record<string, %s>", or: " | ",
	enum: func(values []string) string { return strings.Join(quote(values), " | ") },
}

// TypeScript returns a module with the types of a document.
func TypeScript(document []byte) ([]byte, error) {
	t, err := read(document)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("// The types of Spool's HTTP API. Generated from openapi.json; do not edit.\n")
	for _, o := range t.objects {
		fmt.Fprintf(&b, "\nexport interface %s {\n", o.name)
		for _, m := range o.members {
			mark := "?"
			if m.required {
				mark = ""
			}
			fmt.Fprintf(&b, "  %s%s: %s;\n", m.name, mark, typescriptTypes.of(t, m.schema))
		}
		b.WriteString("}\n")
	}
	return []byte(b.String()), nil
}
