package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spool-run/spool/internal/lazyregexp"
)

// kernelSpec is the file that tells front ends of Jupyter how to start a kernel.
type kernelSpec struct {
	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"`
	Env           map[string]string `json:"env,omitempty"`
	Metadata      map[string]any    `json:"metadata,omitempty"`
}

const (
	kernelSpecFile   = "kernel.json"
	kernelSpecMarker = "spool" // a key of the metadata of our kernels
	defaultKernel    = "spool"
)

// kernelName matches what Jupyter takes as the name of a kernel.
var kernelName = lazyregexp.New(`^[A-Za-z0-9._-]+$`)

func (a *app) jupyterInstallCommand() *cobra.Command {
	var o pyOptions
	var name, title, prefix string
	cmd := &cobra.Command{
		Use:   "install [flags]",
		Short: "Register the kernel, so that front ends of Jupyter offer it",
		Long: `Install writes a kernelspec, with which JupyterLab, nbclient, papermill and other front
ends start kernels of Spool. It goes to the directory of this user, or below --prefix, such as
that of a virtual environment. An older one of the same name is replaced.

The flags of the interpreter, and --state, --server and the other flags of every command,
become part of it. Install several with --name and --display-name, such as one for each
interpreter.`,
		Example: `  spool jupyter install
  spool jupyter install --prefix .venv
  spool jupyter install --name analysis --display-name "Analysis (Spool)" --python ~/env/bin/python --preload pandas
  spool jupyter install --name careful --isolate workspace-write`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !kernelName().MatchString(name) {
				return usageErrorf("--name %q: use letters, digits, dots, dashes and underscores", name)
			}
			if err := a.checkEnvFrom(o.envFrom); err != nil {
				return err
			}
			if title == "" {
				if title = "Python (Spool)"; name != defaultKernel {
					title = "Python (Spool: " + name + ")"
				}
			}
			args, err := givenFlags(cmd.Flags(), "name", "display-name", "prefix")
			if err != nil {
				return err
			}
			return a.installKernel(prefix, name, title, args)
		},
	}
	cmd.Flags().StringVar(&name, "name", defaultKernel, "`name` of the kernel, with which programs ask for it")
	cmd.Flags().StringVar(&title, "display-name", "", "`name` of the kernel for people")
	cmd.Flags().StringVar(&prefix, "prefix", "", "`directory` below which share/jupyter/kernels is")
	o.addNotebook(cmd)
	return cmd
}

func (a *app) installKernel(prefix, name, title string, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	dir, err := kernelsDir(prefix)
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, name)
	spec, found, err := readKernelSpec(dir)
	if err != nil {
		return err
	}
	if found && !spec.ours() {
		return &hintedError{fmt.Errorf("another program installed the kernel %q in %s", name, dir), "choose another --name"}
	}
	b, err := json.MarshalIndent(kernelSpec{
		Argv:        append(append([]string{program, "jupyter", "kernel"}, args...), "{connection_file}"),
		DisplayName: title, Language: "python", InterruptMode: "message",
		Metadata: map[string]any{"debugger": false, kernelSpecMarker: version().Version},
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install the kernel: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, kernelSpecFile), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("install the kernel: %w", err)
	}
	_, err = fmt.Fprintf(a.stdout, "installed %s in %s\n", name, dir)
	return err
}

func (a *app) jupyterUninstallCommand() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "uninstall [flags] [NAME…]",
		Short: "Remove kernels that install registered",
		Long: `Uninstall removes kernelspecs that "spool jupyter install" wrote; without a NAME, the one
called ` + defaultKernel + `. Runs go on. Kernels of other programs are left alone.`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{defaultKernel}
			}
			for _, name := range args {
				if err := a.uninstallKernel(prefix, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "`directory` below which share/jupyter/kernels is")
	return cmd
}

func (a *app) uninstallKernel(prefix, name string) error {
	if !kernelName().MatchString(name) {
		return usageErrorf("there is no kernel %q", name)
	}
	dir, err := kernelsDir(prefix)
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, name)
	spec, found, err := readKernelSpec(dir)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("there is no kernel %q in %s", name, filepath.Dir(dir))
	case !spec.ours():
		return fmt.Errorf("another program installed the kernel %q in %s", name, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the kernel: %w", err)
	}
	_, err = fmt.Fprintf(a.stdout, "removed %s from %s\n", name, filepath.Dir(dir))
	return err
}

// kernelView is a kernel as list shows it.
type kernelView struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"display_name"`
	Dir         string   `json:"dir"`
	Argv        []string `json:"argv"`
}

func (a *app) jupyterListCommand() *cobra.Command {
	var prefix string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the kernels that install registered",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(*cobra.Command, []string) error { return a.listKernels(prefix, asJSON) },
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "`directory` below which share/jupyter/kernels is")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) listKernels(prefix string, asJSON bool) error {
	dir, err := kernelsDir(prefix)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list kernels: %w", err)
	}
	enc := json.NewEncoder(a.stdout)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "NAME\tDISPLAY NAME\tDIRECTORY")
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		spec, found, err := readKernelSpec(path)
		if err != nil || !found || !spec.ours() {
			continue // that of another program
		}
		if asJSON {
			if err := enc.Encode(kernelView{e.Name(), spec.DisplayName, path, spec.Argv}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Name(), spec.DisplayName, path)
	}
	return w.Flush()
}

// ours reports whether install wrote the kernelspec.
func (s *kernelSpec) ours() bool {
	_, marked := s.Metadata[kernelSpecMarker]
	return marked && slices.Contains(s.Argv, "jupyter")
}

func readKernelSpec(dir string) (spec kernelSpec, found bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, kernelSpecFile))
	if errors.Is(err, fs.ErrNotExist) {
		return spec, false, nil
	}
	if err != nil {
		return spec, false, fmt.Errorf("read the kernelspec: %w", err)
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		return spec, true, fmt.Errorf("read the kernelspec in %s: %w", dir, err)
	}
	return spec, true, nil
}

// kernelsDir is where front ends look for the kernels of this user, or of a prefix.
func kernelsDir(prefix string) (string, error) {
	if prefix != "" {
		return filepath.Abs(filepath.Join(prefix, "share", "jupyter", "kernels"))
	}
	if dir := os.Getenv("JUPYTER_DATA_DIR"); dir != "" {
		return filepath.Join(dir, "kernels"), nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" && runtime.GOOS != "darwin" {
		return filepath.Join(dir, "jupyter", "kernels"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of this user: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Jupyter", "kernels"), nil
	}
	return filepath.Join(home, ".local", "share", "jupyter", "kernels"), nil
}
