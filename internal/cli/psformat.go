package cli

import (
	"encoding/json"
	"io"
	"strings"
	"text/template"
	"time"

	"github.com/spool-run/spool"
)

// psRow are the fields of a template of ps.
type psRow struct {
	ID, Name, Engine, Status, State, Age, Took, Created, Ended, Bytes, Events, Pid, Cwd, Labels, Owner, Command string
}

func psFields() []string {
	return []string{"ID", "Name", "Engine", "Status", "State", "Age", "Took", "Created", "Ended", "Bytes", "Events", "Pid", "Cwd", "Labels", "Owner", "Command"}
}

// newFormat parses a template. \t and \n in it are a tab and the end of a line,
// which a shell passes on as they are typed.
func newFormat(text string) (*template.Template, error) {
	text = strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(text)
	t, err := template.New("format").Funcs(formatFuncs(&spool.Info{})).Parse(text)
	if err == nil {
		err = t.Execute(io.Discard, psRow{})
	}
	if err != nil {
		return nil, usageErrorf("--format: %s; the fields are .%s", templateError(err), strings.Join(psFields(), ", ."))
	}
	return t, nil
}

// templateError is what a template's error says, without where in this program
// it happened.
func templateError(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ">: "); i >= 0 {
		text = text[i+len(">: "):]
	}
	text = strings.TrimPrefix(text, "template: format:")
	return strings.ReplaceAll(text, " in type cli.psRow", "")
}

func formatFuncs(info *spool.Info) template.FuncMap {
	return template.FuncMap{
		"json": func() (string, error) {
			b, err := json.Marshal(info)
			return string(b), err
		},
		"label": func(name string) string { return info.Labels[name] },
	}
}

func formatRun(w io.Writer, format *template.Template, info *spool.Info) error {
	text := make(map[string]string, len(runColumns))
	now := time.Now()
	for _, c := range runColumns {
		text[c.name] = plain(c.text(info, now))
	}
	row := psRow{
		ID: string(info.ID), Name: text["name"], Engine: text["engine"], Status: text["status"], State: text["state"],
		Age: text["age"], Took: text["took"], Created: text["created"], Ended: text["ended"], Bytes: text["bytes"],
		Events: text["events"], Pid: text["pid"], Cwd: text["cwd"], Labels: text["labels"], Owner: text["owner"], Command: text["command"],
	}
	t, err := format.Clone()
	if err != nil {
		return err
	}
	if err := t.Funcs(formatFuncs(info)).Execute(w, row); err != nil {
		return usageErrorf("--format: %s", templateError(err))
	}
	_, err = io.WriteString(w, "\n")
	return err
}
