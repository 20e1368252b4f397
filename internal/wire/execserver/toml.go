package execserver

import (
	"cmp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// tomlTable is a parsed TOML file.
type tomlTable struct {
	values map[string]any
	order  map[string]int // place of a key in the file, by its path
}

func parseTOML(text string) (tomlTable, error) {
	t := tomlTable{values: make(map[string]any), order: make(map[string]int)}
	meta, err := toml.Decode(text, &t.values)
	if err != nil {
		return tomlTable{}, err
	}
	for i, key := range meta.Keys() {
		path := strings.Join(key, "\x00")
		if _, ok := t.order[path]; !ok {
			t.order[path] = i
		}
	}
	return t, nil
}

// encode returns the values as TOML, in the order of the file and in the form in
// which codex writes it: a header for every table that has values of its own,
// and no indentation.
func (t tomlTable) encode() string {
	var b strings.Builder
	t.encodeTable(&b, nil, t.values, "")
	return b.String()
}

// encodeTable writes a table. The header is empty if the table has none, and is
// written only if the table has values of its own, or nothing.
func (t tomlTable) encodeTable(b *strings.Builder, path toml.Key, table map[string]any, header string) {
	keys := make([]string, 0, len(table))
	tables := 0
	for key, value := range table {
		keys = append(keys, key)
		if _, isTable := asTables(value); isTable {
			tables++
		}
	}
	slices.SortFunc(keys, func(x, y string) int {
		return cmp.Or(cmp.Compare(t.place(path, x), t.place(path, y)), cmp.Compare(x, y))
	})
	list := strings.HasPrefix(header, "[[")
	if header != "" && (list || tables < len(table) || len(table) == 0) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(header)
		b.WriteByte('\n')
	}
	for _, key := range keys {
		if _, isTable := asTables(table[key]); !isTable {
			b.WriteString(toml.Key{key}.String())
			b.WriteString(" = ")
			b.WriteString(encodeValue(table[key]))
			b.WriteByte('\n')
		}
	}
	for _, key := range keys {
		tables, isTable := asTables(table[key])
		if !isTable {
			continue
		}
		inner := append(slices.Clone(path), key)
		_, single := table[key].(map[string]any)
		for _, table := range tables {
			header := "[" + inner.String() + "]"
			if !single {
				header = "[" + header + "]"
			}
			t.encodeTable(b, inner, table, header)
		}
	}
}

// place returns the place of a key in the file; unknown keys are last.
func (t tomlTable) place(path toml.Key, key string) int {
	if i, ok := t.order[strings.Join(append(slices.Clone(path), key), "\x00")]; ok {
		return i
	}
	return len(t.order)
}

// asTables returns the tables that a value consists of: one, or those of a list
// that has nothing else.
func asTables(value any) ([]map[string]any, bool) {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}, true
	case []map[string]any:
		return v, len(v) > 0
	case []any:
		tables := make([]map[string]any, 0, len(v))
		for _, item := range v {
			table, ok := item.(map[string]any)
			if !ok {
				return nil, false
			}
			tables = append(tables, table)
		}
		return tables, len(v) > 0
	}
	return nil, false
}

// encodeValue returns the text of a value that is not a table.
func encodeValue(value any) string {
	b, err := toml.Marshal(map[string]any{"v": value})
	if err != nil {
		return `""` // not possible for a value that was decoded
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(b), "v = "), "\n")
}
