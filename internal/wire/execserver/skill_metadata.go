package execserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of skills, in characters.
const (
	maxSkillName      = 64
	maxQualifiedSkill = 2*maxSkillName + 1 // namespace, colon, name
	maxToolWord       = 64
	maxToolText       = 1024
)

// skillHeader is the YAML at the start of a SKILL.md.
type skillHeader struct {
	name             string // may be empty
	description      string
	shortDescription *string
}

// parseSkillHeader parses the YAML between the first two lines of dashes.
func parseSkillHeader(contents string) (skillHeader, error) {
	var h skillHeader
	text, err := frontMatter(contents)
	if err != nil {
		return h, err
	}
	root, err := parseYAML(text)
	if err != nil {
		// Skills often have prose with colons where YAML needs quotes.
		if root, err = parseYAML(quoteScalars(text)); err != nil {
			return h, err
		}
	}
	members, err := mapping(root, "name", "description", "metadata")
	if err != nil {
		return h, err
	}
	for name, into := range map[string]*string{"name": &h.name, "description": &h.description} {
		s, err := scalar(members[name])
		if err != nil {
			return h, fmt.Errorf("%s: %w", name, err)
		}
		*into = oneLine(s)
	}
	if n := members["metadata"]; n != nil {
		metadata, err := mapping(n, "short-description")
		if err != nil {
			return h, fmt.Errorf("metadata: %w", err)
		}
		s, err := scalar(metadata["short-description"])
		if err != nil {
			return h, fmt.Errorf("short-description: %w", err)
		}
		if s = oneLine(s); s != "" {
			h.shortDescription = &s
		}
	}
	if h.description == "" {
		return h, errors.New("missing field `description`")
	}
	return h, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// frontMatter returns the lines between the first line, which must be dashes,
// and the next line of dashes.
func frontMatter(contents string) (string, error) {
	first, rest, _ := strings.Cut(contents, "\n")
	if strings.TrimSpace(first) == "---" {
		var b strings.Builder
		for line := range strings.Lines(rest) {
			if strings.TrimSpace(line) == "---" {
				if b.Len() == 0 {
					break
				}
				return b.String(), nil
			}
			b.WriteString(strings.TrimRight(line, "\r\n"))
			b.WriteByte('\n')
		}
	}
	return "", errors.New("missing YAML between lines of ---")
}

// quoteScalars quotes the values of lines that are not valid YAML without
// quotes, such as "description: Build for AWS: ECS".
func quoteScalars(text string) string {
	var b strings.Builder
	block := -1 // indent of the key of a block scalar, or -1
	for line := range strings.Lines(text) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if block >= 0 && (strings.TrimSpace(line) == "" || indent > block) {
			b.WriteString(line)
			continue
		}
		block = -1
		key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ":")
		plain := strings.TrimSpace(value)
		comment := ""
		if i := strings.Index(plain, " #"); i >= 0 {
			plain, comment = strings.TrimSpace(plain[:i]), plain[i:]
		}
		if !ok || strings.TrimSpace(key) == "" || value != "" && !unicode.IsSpace(rune(value[0])) || plain == "" || plain[0] == '#' {
			b.WriteString(line)
			continue
		}
		switch plain[0] {
		case '|', '>':
			block = indent
		case '\'', '"':
		default:
			_, err := parseYAML(plain)
			if strings.Contains(plain, ": ") || strings.ContainsRune("[{@`", rune(plain[0])) && err != nil {
				line = key + ": '" + strings.ReplaceAll(plain, "'", "''") + "'" + comment + "\n"
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// skillPolicy is the policy of a skill's agents/openai.yaml.
type skillPolicy struct {
	AllowImplicitInvocation *bool    `json:"allowImplicitInvocation"`
	Products                []string `json:"products"`
}

// skillDependencies are the tools that a skill's agents/openai.yaml names.
type skillDependencies struct {
	Tools []skillTool `json:"tools"`
}

type skillTool struct {
	Type              string  `json:"type"`
	Value             string  `json:"value"`
	Description       *string `json:"description"`
	Transport         *string `json:"transport"`
	Command           *string `json:"command"`
	URL               *string `json:"url"`
	OAuthCallbackPort *uint16 `json:"oauthCallbackPort"`
}

// parseSkillMetadata parses an agents/openai.yaml. As in codex, a value of the
// wrong type makes all of it invalid; a tool without type or value is left out.
func parseSkillMetadata(contents string) (*skillPolicy, *skillDependencies, error) {
	root, err := parseYAML(contents)
	if err != nil {
		return nil, nil, err
	}
	members, err := mapping(root, "interface", "policy", "dependencies")
	if err != nil {
		return nil, nil, err
	}
	if _, err := mapping(members["interface"]); err != nil {
		return nil, nil, fmt.Errorf("interface: %w", err)
	}
	policy, err := parseSkillPolicy(members["policy"])
	if err != nil {
		return nil, nil, fmt.Errorf("policy: %w", err)
	}
	dependencies, err := parseSkillDependencies(members["dependencies"])
	if err != nil {
		return nil, nil, fmt.Errorf("dependencies: %w", err)
	}
	return policy, dependencies, nil
}

func parseSkillPolicy(n *yaml.Node) (*skillPolicy, error) {
	if n == nil {
		return nil, nil
	}
	members, err := mapping(n, "allow_implicit_invocation", "products")
	if err != nil {
		return nil, err
	}
	policy := &skillPolicy{Products: []string{}}
	if allow := members["allow_implicit_invocation"]; allow != nil {
		b, err := strconv.ParseBool(strings.ToLower(allow.Value))
		if err != nil || allow.ShortTag() != "!!bool" {
			return nil, errors.New("allow_implicit_invocation is not a boolean")
		}
		policy.AllowImplicitInvocation = &b
	}
	products, err := sequence(members["products"])
	if err != nil {
		return nil, err
	}
	for _, n := range products {
		product, err := scalar(n)
		if err != nil {
			return nil, err
		}
		lower := strings.ToLower(product)
		if product != lower && product != strings.ToUpper(product) || !slices.Contains([]string{"chatgpt", "codex", "atlas"}, lower) {
			return nil, fmt.Errorf("unknown product %s", product)
		}
		policy.Products = append(policy.Products, lower)
	}
	return policy, nil
}

func parseSkillDependencies(n *yaml.Node) (*skillDependencies, error) {
	members, err := mapping(n, "tools")
	if err != nil {
		return nil, err
	}
	list, err := sequence(members["tools"])
	if err != nil {
		return nil, err
	}
	var tools []skillTool
	for _, n := range list {
		tool, err := parseSkillTool(n)
		if err != nil {
			return nil, err
		}
		if tool.Type != "" && tool.Value != "" {
			tools = append(tools, tool)
		}
	}
	if tools == nil {
		return nil, nil
	}
	return &skillDependencies{tools}, nil
}

func parseSkillTool(n *yaml.Node) (tool skillTool, err error) {
	members, err := mapping(n, "type", "value", "description", "transport", "command", "url", "oauth")
	if err != nil {
		return tool, err
	}
	text := func(name string, limit int) *string {
		s, e := scalar(members[name])
		if e != nil {
			err = fmt.Errorf("%s: %w", name, e)
		}
		if s = oneLine(s); s == "" || utf8.RuneCountInString(s) > limit {
			return nil
		}
		return &s
	}
	if s := text("type", maxToolWord); s != nil {
		tool.Type = *s
	}
	if s := text("value", maxToolText); s != nil {
		tool.Value = *s
	}
	tool.Description = text("description", maxToolText)
	tool.Transport = text("transport", maxToolWord)
	tool.Command = text("command", maxToolText)
	tool.URL = text("url", maxToolText)
	if err != nil {
		return tool, err
	}
	oauth, err := mapping(members["oauth"], "callback_port", "callbackPort")
	if err != nil {
		return tool, err
	}
	for _, name := range []string{"callback_port", "callbackPort"} {
		if n := oauth[name]; n != nil {
			port, err := strconv.ParseUint(n.Value, 10, 16)
			if err != nil || n.ShortTag() != "!!int" {
				return tool, fmt.Errorf("%s is not a port", name)
			}
			p := uint16(port)
			tool.OAuthCallbackPort = &p
		}
	}
	return tool, nil
}

// parseYAML returns the root node of a text with one document, or nil if the
// text is empty.
func parseYAML(text string) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case err == io.EOF:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); err != io.EOF {
		return nil, errors.New("more than one document")
	}
	return resolve(document.Content[0]), nil
}

// resolve follows an alias and returns nil for null.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.ShortTag() == "!!null" {
		return nil
	}
	return n
}

// mapping returns the named members of a mapping, without those that are null.
// It refuses a name that occurs twice. A nil node has no members.
func mapping(n *yaml.Node, names ...string) (map[string]*yaml.Node, error) {
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, errors.New("not a mapping")
	}
	members := make(map[string]*yaml.Node)
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if !slices.Contains(names, name) {
			continue
		}
		if seen[name] {
			return nil, fmt.Errorf("duplicate field `%s`", name)
		}
		seen[name] = true
		if value := resolve(n.Content[i+1]); value != nil {
			members[name] = value
		}
	}
	return members, nil
}

// scalar returns the text of a scalar as it is written, and "" for a nil node.
func scalar(n *yaml.Node) (string, error) {
	switch {
	case n == nil:
		return "", nil
	case n.Kind != yaml.ScalarNode:
		return "", errors.New("not a string")
	}
	return n.Value, nil
}

// sequence returns the items of a sequence. A nil node has none.
func sequence(n *yaml.Node) ([]*yaml.Node, error) {
	switch {
	case n == nil:
		return nil, nil
	case n.Kind != yaml.SequenceNode:
		return nil, errors.New("not a list")
	}
	items := make([]*yaml.Node, len(n.Content))
	for i, item := range n.Content {
		items[i] = resolve(item)
	}
	return items, nil
}
