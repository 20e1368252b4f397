package sdk

import (
	"fmt"
	"slices"
	"strings"
)

var pythonTypes = language{
	any: "Any", str: "str", integer: "int", number: "float", boolean: "bool", null: "None",
	array: "list[%s]", dict: "dict[str, %s]", or: " | ",
	enum: func(values []string) string { return "Literal[" + strings.Join(quote(values), ", ") + "]" },
}

// keywords are the words of Python that may be members in JSON.
var keywords = []string{"from", "in", "is", "not", "class", "import", "as", "with", "global", "pass", "raise", "return", "def"}

// Python returns a module with the types of a document.
func Python(document []byte) ([]byte, error) {
	t, err := read(document)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(`"""The types of Spool's HTTP API. Generated from openapi.json; do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

`)
	var names []string
	for _, o := range t.objects {
		names = append(names, o.name)
	}
	b.WriteString("__all__ = [\n")
	for _, n := range names {
		fmt.Fprintf(&b, "    %q,\n", n)
	}
	b.WriteString("]\n")
	for _, o := range t.objects {
		writePython(&b, t, o)
	}
	return []byte(b.String()), nil
}

// writePython writes an object as one typed dictionary, or as two if some of its
// members may be absent: Python 3.10 has no other way to say so.
func writePython(b *strings.Builder, t *types, o object) {
	var required, optional []member
	for _, m := range o.members {
		if m.required {
			required = append(required, m)
		} else {
			optional = append(optional, m)
		}
	}
	base := "TypedDict"
	if len(required) > 0 && len(optional) > 0 {
		base = "_" + o.name
		writeDict(b, t, base, "TypedDict", required, false)
		required = nil
	}
	if len(required) > 0 {
		writeDict(b, t, o.name, base, required, false)
		return
	}
	writeDict(b, t, o.name, base, optional, true)
}

func writeDict(b *strings.Builder, t *types, name, base string, members []member, optional bool) {
	if base == "TypedDict" && slices.ContainsFunc(members, func(m member) bool { return slices.Contains(keywords, m.name) }) {
		fmt.Fprintf(b, "\n\n%s = TypedDict(\n    %q,\n    {\n", name, name)
		for _, m := range members {
			fmt.Fprintf(b, "        %q: %q,\n", m.name, pythonTypes.of(t, m.schema))
		}
		b.WriteString("    },\n")
		if optional {
			b.WriteString("    total=False,\n")
		}
		b.WriteString(")\n")
		return
	}
	total := ""
	if optional {
		total = ", total=False"
	}
	fmt.Fprintf(b, "\n\nclass %s(%s%s):\n", name, base, total)
	for _, m := range members {
		fmt.Fprintf(b, "    %s: %s\n", m.name, pythonTypes.of(t, m.schema))
	}
	if len(members) == 0 {
		b.WriteString("    pass\n")
	}
}
