package cli

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// mainModule is the module that a directory or an archive runs.
const mainModule = "__main__"

// moduleArgs puts "--" after the MODULE of "py -m MODULE" and "box -m MODULE": all
// arguments after it are those of the module, as they are in Python.
func moduleArgs(verb *cobra.Command, args []string) []string {
	if name := verb.Parent(); name != nil && (name.Name() == "py" || name.Name() == "box") {
		verb = name // "doctor" may be an argument of the module
	}
	if verb.Name() != "py" && verb.Name() != "box" {
		return args
	}
	_ = verb.InheritedFlags() // adds the flags of every verb to those of this one
	flags := verb.Flags()
	named := false // the verb
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, valued := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch {
		case arg == "--":
			return args
		case strings.HasPrefix(arg, "--"):
			f := flags.Lookup(name)
			if f == nil {
				return args // an error
			}
			if !valued && f.NoOptDefVal == "" {
				i++
			}
			if f.Name == "module" {
				return endOfFlags(args, i+1)
			}
		case len(arg) > 1 && arg[0] == '-':
			for j := 1; j < len(arg); j++ {
				f := flags.ShorthandLookup(arg[j : j+1])
				if f == nil {
					return args // an error
				}
				if f.NoOptDefVal != "" {
					continue
				}
				if j == len(arg)-1 {
					i++
				}
				if f.Name == "module" {
					return endOfFlags(args, i+1)
				}
				break
			}
		case named:
			return args // a FILE
		default:
			named = true
		}
	}
	return args
}

// endOfFlags inserts "--" at i.
func endOfFlags(args []string, i int) []string {
	if i >= len(args) {
		return args
	}
	out := append(make([]string, 0, len(args)+1), args[:i]...)
	return append(append(out, "--"), args[i:]...)
}

// isArchive reports whether Python runs the __main__.py in a path: whether it is a
// directory or a zip archive.
func isArchive(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		return true, nil
	}
	if !info.Mode().IsRegular() {
		return false, nil
	}
	_, err = zip.NewReader(f, info.Size())
	return err == nil, nil
}

// absolute makes a path absolute as Python does: it keeps "." and "..".
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	return strings.TrimSuffix(dir, "/") + "/" + path, nil
}
