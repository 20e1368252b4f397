package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spool-run/spool/internal/privatedir"
)

// maxConfig is the maximum size of the configuration file, in bytes.
const maxConfig = 1 << 20

// variables are the environment variables that set keys of the configuration
// file. A variable that is set and empty also hides the value in the file.
var variables = map[string]string{
	"server":                          "SPOOL_SERVER",
	"token-file":                      "SPOOL_TOKEN", // the token itself
	"tls-pin":                         "SPOOL_TLS_PIN",
	"tls-ca":                          "SPOOL_TLS_CA",
	"tls-client-cert":                 "SPOOL_TLS_CLIENT_CERT",
	"state":                           "SPOOL_STATE",
	"archive":                         "SPOOL_ARCHIVE",
	"serve.notify":                    "SPOOL_NOTIFY",
	"box.dist":                        "SPOOL_PYODIDE",
	"box.node":                        "SPOOL_NODE",
	"exec-server.exit-on-stdin-close": exitOnStdinClose,
}

// sharedKeys are flags of several commands that the file may set for all of
// them, outside a table.
var sharedKeys = []string{"detach-keys"}

// notInFile are the flags that belong to one invocation.
var notInFile = []string{"after", "code", "dry-run", "help", "id", "json", "name", "resume", "session", "version"}

// unconfigured are the commands that do not read the configuration file.
var unconfigured = []string{
	"help", "completion", "config", "man", "version", "torture", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd,
}

// configFile is the content of the configuration file.
type configFile struct {
	path  string // "" if the user has no home directory
	found bool
	table map[string]any
}

// configError is an error in the configuration file.
type configError struct {
	path, key string // key is "" if the error is about the whole file
	err       error
}

func (e *configError) Error() string {
	if e.key == "" {
		return fmt.Sprintf("configuration file %s: %v", e.path, e.err)
	}
	return fmt.Sprintf("configuration file %s: %s: %v", e.path, e.key, e.err)
}

func (e *configError) Unwrap() error { return e.err }

// configPath returns the path of the configuration file, or "" if there can be
// none.
func configPath() string {
	if path, ok := os.LookupEnv("SPOOL_CONFIG"); ok {
		return path
	}
	base := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) { // the standard says to ignore relative ones
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "spool", "config.toml")
}

// readConfig reads the configuration file and checks its keys. A file that does
// not exist is empty, unless SPOOL_CONFIG names it.
func readConfig() (*configFile, error) {
	c := &configFile{path: configPath()}
	if c.path == "" {
		return c, nil
	}
	fi, err := os.Stat(c.path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("SPOOL_CONFIG") == "" {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	if fi.Mode().IsRegular() {
		if fi.Size() > maxConfig {
			return nil, &configError{path: c.path, err: fmt.Errorf("it is longer than %d bytes", maxConfig)}
		}
		// What other users wrote must not choose servers and programs.
		if err := privatedir.CheckFile(c.path, fi); err != nil {
			return nil, fmt.Errorf("configuration file: %w", err)
		}
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	c.found = true
	if _, err := toml.Decode(string(text), &c.table); err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			err = fmt.Errorf("line %d: %s", syntax.Position.Line, syntax.Message)
		}
		return nil, &configError{path: c.path, err: err}
	}
	return c, c.check(Tree(), c.table, "")
}

// check refuses the keys of a table that no flag of the command has.
func (c *configFile) check(cmd *cobra.Command, table map[string]any, prefix string) error {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key := prefix + name
		sub, isTable := table[name].(map[string]any)
		if isTable {
			if child := configurable(cmd, name); child != nil {
				if err := c.check(child, sub, key+"."); err != nil {
					return err
				}
				continue
			}
			return c.unknown(key, "table", prefix, configTables(cmd))
		}
		if slices.Contains(notInFile, name) && (cmd.Flag(name) != nil || name == "json") {
			return &configError{c.path, key, fmt.Errorf("--%s belongs to one command: give it as a flag", name)}
		}
		if keys := configKeys(cmd); !slices.Contains(keys, name) {
			return c.unknown(key, "key", prefix, keys)
		}
	}
	return nil
}

// unknown is the error for a key or table that does not exist.
func (c *configFile) unknown(key, what, prefix string, known []string) error {
	err := &configError{path: c.path, err: fmt.Errorf("unknown %s %q", what, key)}
	if near := nearest(strings.TrimPrefix(key, prefix), known); near != "" {
		return &hintedError{err, fmt.Sprintf("did you mean %q?", prefix+near)}
	}
	return &hintedError{err, `"spool config show --all" lists the keys`}
}

// configurable returns the command below a command that has a table, or nil.
func configurable(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name && !c.Hidden && !slices.Contains(unconfigured, name) {
			return c
		}
	}
	return nil
}

// configTables returns the names of the tables in the table of a command.
func configTables(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if configurable(cmd, c.Name()) == c && len(configKeys(c)) > 0 {
			names = append(names, c.Name())
		}
	}
	return names
}

// configKeys returns the keys in the table of a command.
func configKeys(cmd *cobra.Command) []string {
	var keys []string
	add := func(f *pflag.Flag) {
		if !f.Hidden && !slices.Contains(notInFile, f.Name) {
			keys = append(keys, f.Name)
		}
	}
	if !cmd.HasParent() {
		cmd.PersistentFlags().VisitAll(add)
		new(storeOptions).flags().VisitAll(add)
		return append(keys, sharedKeys...)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return keys
}

// value returns the value of a flag in the file: in the table of the command, in
// that of a parent, or outside the tables. Key says where it is.
func (c *configFile) value(cmd *cobra.Command, f *pflag.Flag) (value any, key string, ok bool) {
	path := commandPath(cmd)
	for n := len(path); n >= 0; n-- {
		table, isTable := c.table, true
		for _, name := range path[:n] {
			if table, isTable = table[name].(map[string]any); !isTable {
				break
			}
		}
		if !isTable || n == 0 && cmd.HasParent() && !isShared(cmd, f) {
			continue
		}
		if value, ok = table[f.Name]; ok {
			return value, strings.Join(append(path[:n:n], f.Name), "."), true
		}
	}
	return nil, "", false
}

// isShared reports whether a key outside the tables sets this flag of a command.
func isShared(cmd *cobra.Command, f *pflag.Flag) bool {
	return cmd.Root().PersistentFlags().Lookup(f.Name) == f || slices.Contains(sharedKeys, f.Name) ||
		new(storeOptions).flags().Lookup(f.Name) != nil
}

// commandPath returns the names of a command and its parents below the root.
func commandPath(cmd *cobra.Command) []string {
	var path []string
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		path = append(path, cmd.Name())
	}
	slices.Reverse(path)
	return path
}

// The sources of a value, in the order in which they win.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromFile        = "file"
	fromDefault     = "default"
)

// setting is the value of a key and its source.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`         // flag, environment, file or default
	From   string `json:"from,omitempty"` // the flag, the variable or the file
}

// resolve sets a flag from its source: the command line, its environment
// variable, or the file.
func (c *configFile) resolve(cmd *cobra.Command, f *pflag.Flag) (setting, error) {
	s := setting{Key: f.Name, Source: fromDefault}
	if !isGlobal(cmd, f) {
		s.Key = strings.Join(append(commandPath(cmd), f.Name), ".")
	}
	variable := variables[s.Key]
	text, set := os.LookupEnv(variable)
	value, _, inFile := c.value(cmd, f)
	switch {
	case f.Changed:
		s.Source, s.From = fromFlag, "--"+f.Name
	case variable != "" && set:
		s.Source, s.From = fromEnvironment, variable
		if f.Name == "token-file" {
			s.Value = "(a token)"
			return s, nil
		}
		if f.Value.Type() == "bool" {
			text = strconv.FormatBool(isTrue(text))
		}
		if err := f.Value.Set(text); err != nil {
			return s, fmt.Errorf("%s: %w", variable, valueError(f.Value.Type(), text, err))
		}
	case inFile:
		s.Source, s.From = fromFile, c.path
		if err := setFlag(f, value); err != nil {
			_, key, _ := c.value(cmd, f)
			return s, &configError{c.path, key, err}
		}
	}
	s.Value = redacted(f.Value.String())
	return s, nil
}

// redacted is a value as it is shown: the password of a URL is not.
func redacted(value string) string {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		return u.Redacted()
	}
	return value
}

// isGlobal reports whether every command has the flag.
func isGlobal(cmd *cobra.Command, f *pflag.Flag) bool {
	return !cmd.HasParent() || cmd.Root().PersistentFlags().Lookup(f.Name) == f
}

// setFlag sets a flag to a value of the file.
func setFlag(f *pflag.Flag, value any) error {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	var texts []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			if rest, ok := strings.CutPrefix(v, "~/"); ok { // as in a shell
				home, err := os.UserHomeDir()
				if err != nil {
					return err
				}
				v = filepath.Join(home, rest)
			}
			texts = append(texts, v)
		case int64, float64, bool:
			texts = append(texts, fmt.Sprint(v))
		default:
			return errors.New("use a string, a number, true, false or a list of them")
		}
	}
	if slice, ok := f.Value.(pflag.SliceValue); ok {
		return slice.Replace(texts)
	}
	if isList {
		return errors.New("use one value instead of a list")
	}
	if err := f.Value.Set(texts[0]); err != nil {
		return valueError(f.Value.Type(), texts[0], err)
	}
	return nil
}

// configure sets the flags that the command line does not set, from the
// environment and the configuration file.
func (a *app) configure(cmd *cobra.Command) error {
	if path := commandPath(cmd); len(path) == 0 || slices.Contains(unconfigured, path[0]) || cmd.Hidden {
		return nil
	}
	c, err := readConfig()
	if err != nil {
		return err
	}
	a.configured = make(map[string]bool)
	_, err = c.settings(cmd, a.store.flags(), func(s setting) { a.configured[s.Key] = s.Source != fromDefault })
	return err
}

// settings resolves all flags of a command, and the options of the store.
func (c *configFile) settings(cmd *cobra.Command, store *pflag.FlagSet, each func(setting)) (n int, err error) {
	visit := func(cmd *cobra.Command) func(*pflag.Flag) {
		return func(f *pflag.Flag) {
			if err != nil || slices.Contains(notInFile, f.Name) || f.Hidden {
				return
			}
			var s setting
			if s, err = c.resolve(cmd, f); err == nil {
				n++
				each(s)
			}
		}
	}
	cmd.Flags().VisitAll(visit(cmd))
	if store != nil {
		store.VisitAll(visit(cmd.Root()))
	}
	return n, err
}

// isSet reports whether the command line, the environment or the configuration
// file sets a key.
func (a *app) isSet(key string) bool { return a.configured[key] }

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration",
		Long: `Config shows the configuration and where it comes from. Flags win over environment
variables, which win over the configuration file, which wins over the defaults.

The file is $SPOOL_CONFIG, or spool/config.toml in $XDG_CONFIG_HOME or ~/.config. It
does not have to exist. It is written in TOML: a key is the name of a flag without
the dashes, in the table of its command. The flags of every command are outside the
tables, and so are detach-keys, and retain-age, retain-bytes, retain-runs, retain-label,
compress-after, fsync and archive-cache, which apply to the logs of this machine:

  server = "wss://build.example.org:9000"
  token-file = "~/.config/spool/token"
  retain-age = "720h"
  retain-label = ["ci=12h", "release=forever"]

  [run]
  timeout = "2h"
  env = ["CI=1", "TERM"]

  [py]
  env-from = "all"

Unknown keys are errors. A flag replaces a list in the file. "~/" at the beginning
of a value is your home directory. Other users must not be able to change the file.`,
		Example: "  spool config show\n  spool config show --all\n  spool --server ws://127.0.0.1:9000 config show --json\n  $EDITOR \"$(spool config path)\"",
		Args:    noVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.configShowCommand(), a.configPathCommand())
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "Print each value and where it comes from",
		Long: `Show prints the flags of every command, and those of each command that the
environment or the file sets; with --all, all keys of the configuration file. It
fails if a value in the file is invalid.`,
		Example: "  spool config show\n  spool config show --all --json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.configShow(cmd.Root(), all, asJSON) },
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also print the keys of all commands that have their default")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) configShow(root *cobra.Command, all, asJSON bool) error {
	c, err := readConfig()
	if err != nil {
		return err
	}
	var list []setting
	seen := make(map[string]bool)
	keep := func(s setting) {
		if global := !strings.Contains(s.Key, "."); (all || global || s.Source != fromDefault) && !seen[s.Key] {
			seen[s.Key] = true
			list = append(list, s)
		}
	}
	if _, err := c.settings(root, a.store.flags(), keep); err != nil {
		return err
	}
	var below func(*cobra.Command) error
	below = func(parent *cobra.Command) error {
		for _, name := range configTables(parent) {
			cmd := configurable(parent, name)
			_ = cmd.InheritedFlags() // adds the flags of every command
			if _, err := c.settings(cmd, nil, keep); err != nil {
				return err
			}
			if err := below(cmd); err != nil {
				return err
			}
		}
		return nil
	}
	if err := below(root); err != nil {
		return err
	}
	if asJSON {
		for _, s := range list {
			if err := a.printJSON(s); err != nil {
				return err
			}
		}
		return nil
	}
	slices.SortStableFunc(list, func(a, b setting) int {
		return cmp.Compare(strings.Count(a.Key, "."), strings.Count(b.Key, "."))
	})
	width, value := 0, 0
	for _, s := range list {
		width, value = max(width, len(s.Key)), max(value, min(len(s.Value), 40))
	}
	for _, s := range list {
		source := s.Source
		if s.From != "" {
			source += " " + s.From
		}
		if _, err := fmt.Fprintf(a.stdout, "%-*s  %-*s  %s\n", width, s.Key, value, cmp.Or(plain(s.Value), "-"), source); err != nil {
			return err
		}
	}
	if !c.found && c.path != "" && isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "spool: there is no configuration file %s\n", c.path)
	}
	return nil
}

// configPlace is the output of spool config path --json.
type configPlace struct {
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
}

func (a *app) configPathCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "path [flags]",
		Short:   "Print the path of the configuration file",
		Long:    "Path prints where spool looks for its configuration file. The file does not have\nto exist.",
		Example: "  spool config path\n  $EDITOR \"$(spool config path)\"",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			path := configPath()
			if path == "" {
				return &hintedError{errors.New("there is no home directory"), "set SPOOL_CONFIG or HOME"}
			}
			if asJSON {
				_, err := os.Stat(path)
				return a.printJSON(configPlace{Path: path, Exists: err == nil})
			}
			_, err := fmt.Fprintln(a.stdout, path)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
