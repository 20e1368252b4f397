package sdk

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// word is a line of JSON that ends with a word, which Python spells in another way.
var word = regexp.MustCompile(`(?m)(true|false|null)(,?)$`)

// PythonTools returns a module with a list of tools, in the form of JSON.
func PythonTools(list []byte) ([]byte, error) {
	if !json.Valid(list) {
		return nil, fmt.Errorf("read the list of tools: it is no JSON")
	}
	words := map[string]string{"true": "True", "false": "False", "null": "None"}
	text := word.ReplaceAllStringFunc(string(list), func(found string) string {
		plain, comma := strings.CutSuffix(found, ",")
		if comma {
			return words[plain] + ","
		}
		return words[plain]
	})
	return []byte(`"""The tools for models. Generated from tools.json; do not edit."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOLS: list[dict[str, Any]] = ` + text), nil
}

// TypeScriptTools returns a module with a list of tools, in the form of JSON.
func TypeScriptTools(list []byte) ([]byte, error) {
	if !json.Valid(list) {
		return nil, fmt.Errorf("read the list of tools: it is no JSON")
	}
	return []byte(`// The tools for models. Generated from tools.json; do not edit.
import type { ToolSchema } from "./tools.js";

export const toolList: readonly ToolSchema[] = ` + strings.TrimSuffix(string(list), "\n") + ";\n"), nil
}
