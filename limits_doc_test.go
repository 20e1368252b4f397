package spool_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/cli"
)

// TestLimitsDoc compares the tables of docs/limits.md with the code: each
// constant has the value that its row tells, the flag exists and so do the
// tests. A limit of the code that has no row must be in unlisted.
func TestLimitsDoc(t *testing.T) {
	text, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	d := newDocs(t)
	consts := newConstants(t)
	root := cli.Tree()
	rows := make(map[string]bool)
	for i, line := range strings.Split(string(text), "\n") {
		m := limitRowRE.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name, value, flag, tests := m[1], m[2], m[3], m[4]
		rows[name] = true
		where := fmt.Sprintf("docs/limits.md:%d: %s", i+1, name)
		got, err := consts.value(name)
		want, parseErr := parseLimit(value)
		switch {
		case err != nil:
			t.Errorf("%s: %v", where, err)
		case parseErr != nil:
			t.Errorf("%s: %v", where, parseErr)
		case got != want:
			t.Errorf("%s is %d, the page says %s", where, got, value)
		}
		for _, f := range flagRE.FindAllString(flag, -1) {
			if !anyHasFlag(root, f) {
				t.Errorf("%s: no command has the flag %s", where, f)
			}
		}
		for test := range strings.SplitSeq(tests, ", ") {
			if _, ok := d.tests[strings.Trim(test, "`")]; !ok {
				t.Errorf("%s: no test %s", where, test)
			}
		}
	}
	if len(rows) < 100 {
		t.Errorf("found %d rows: the test does not find them", len(rows))
	}
	for name := range unlisted {
		if _, ok := consts[name]; !ok {
			t.Errorf("unlisted has %s, and the code has not", name)
		}
	}
	for name := range consts {
		if _, err := consts.value(name); err != nil || !limitNameRE.MatchString(name) {
			continue
		}
		if why := unlisted[name]; (why != "") == rows[name] {
			t.Errorf("%s must have a row in docs/limits.md, or a reason in unlisted why it has none: it has %q", name, why)
		}
	}
}

// limitNameRE matches the names of limits.
var limitNameRE = regexp.MustCompile(`\.([mM]ax[A-Z]\w*|\w*(Timeout|Limit|Deadline))$`)

// Reasons why a constant whose name is that of a limit has no row.
const (
	isDerived = "follows from other limits in the tables"
	isText    = "cuts a text for people, who see that it is cut"
	isCache   = "is the size of a buffer, a cache or a pool; more than fits costs time, and nothing else"
	isStep    = "bounds a step inside Spool that no client controls; a later step takes over"
	isCode    = "is an exit code"
	isProbe   = "is what spool doctor sets up to see whether the kernel enforces it"
	isLocal   = "bounds what a command reads on behalf of the user who typed it"
	isKernels = "is the kernel's own number: beyond it the kernel refuses as well"
)

// unlisted are the constants that need no row, and why.
var unlisted = map[string]string{
	"runfile.maxSection":               isDerived,
	"cli.maxPrompt":                    isDerived,
	"cli.maxRequest":                   isDerived,
	"execserver.maxAnswerFile":         isDerived,
	"execserver.maxQualifiedSkill":     isDerived,
	"record.MaxSize":                   isDerived,
	"sandbox.MaxAskBytes":              isDerived,
	"vfs.MaxMessage":                   isDerived,
	"wasipy.maxAskFrame":               isDerived,
	"wasipy.maxCall":                   isDerived,
	"wasipy.maxFrame":                  isDerived,
	"forkexec.maxFiles":                isCache,
	"forkexec.maxStarts":               isCache,
	"acpapi.maxTitle":                  isText,
	"cli.maxLine":                      isText,
	"lens.MaxLine":                     isText,
	"search.maxText":                   isText,
	"search.maxErrors":                 isText,
	"cli.maxTail":                      isText,
	"client.maxRefusal":                isText,
	"cluster.maxCached":                isCache,
	"cluster.abandonTimeout":           isStep,
	"cluster.dialTimeout":              isStep,
	"cluster.findTimeout":              isStep,
	"cluster.checkTimeout":             isStep,
	"cluster.leaveTimeout":             isStep,
	"cluster.offerTimeout":             isStep,
	"cluster.registerTimeout":          isStep,
	"cluster.settleTimeout":            isStep,
	"natsd.attemptTimeout":             isStep,
	"natsd.decideTimeout":              isStep,
	"natsd.nextTimeout":                isStep,
	"natsd.maxConsumers":               isStep,
	"execserver.maxCapabilityWarnings": isText,
	"host.maxTitle":                    isText,
	"isolate.maxHolds":                 "how often a directory that is removed meanwhile is made again",
	"isolate.maxTrafficText":           isText,
	"keeper.maxCause":                  isText,
	"kernel.maxTraceback":              isText,
	"kernel.maxTraced":                 isText,
	"mcpapi.maxAsks":                   isText,
	"mcpapi.maxPrompt":                 isText,
	"pyodide.maxSaid":                  isText,
	"pyodide.maxTail":                  isText,
	"render.DefaultMaxText":            isText,
	"render.DefaultMaxTranscript":      isText,
	"render.maxBeside":                 isText,
	"render.maxExcerptLine":            isText,
	"render.maxShapes":                 isText,
	"render.maxTrace":                  isText,
	"render.maxCells":                  isText,
	"render.maxDataText":               isText,
	"render.maxHTML":                   isText,
	"takopi.maxOpenCodeOutput":         isText,
	"wasipy.maxErrorText":              isText,
	"access.maxSubjects":               isCache,
	"access.maxNoted":                  isCache,
	"access.maxPaced":                  isCache,
	"acp.maxPieces":                    isCache,
	"cli.maxControl":                   isCache,
	"cli.maxString":                    isCache,
	"collector.maxGarbage":             isCache,
	"collector.memoryLimit":            isCache,
	"eventlog.maxBorrowed":             isCache,
	"eventlog.maxBorrowedCrowd":        isCache,
	"execserver.maxExecuting":          isCache,
	"execserver.maxPendingStarts":      isCache,
	"keeper.maxTry":                    isCache,
	"keeper.maxSoon":                   isCache,
	"kernel.maxResolved":               isCache,
	"kernel.maxStarting":               isCache,
	"mcpapi.maxServers":                isCache,
	"launch.maxForking":                isCache,
	"launch.maxOpenBusy":               isCache,
	"launch.maxOpenFree":               isCache,
	"process.maxCountInterval":         isCache,
	"prompt.maxSequence":               isCache,
	"prompt.maxUndo":                   isCache,
	"pyodide.maxBirths":                isCache,
	"pyodide.maxControl":               isCache,
	"pyodide.maxSnapshots":             isCache,
	"reactor.maxBlocking":              isCache,
	"rpc.maxTry":                       isCache,
	"record.maxRoom":                   isCache,
	"rpc.maxGuess":                     isCache,
	"rpc.maxSpare":                     isCache,
	"store.maxChunk":                   isCache,
	"wasipy.maxAwake":                  isCache,
	"acp.maxRounds":                    isStep,
	"doctor.maxFiles":                  isStep,
	"keeper.maxLease":                  isStep,
	"keeper.startTimeout":              isStep,
	"kernel.closeTimeout":              isStep,
	"kernel.drainTimeout":              isStep,
	"kernel.reapTimeout":               isStep,
	"kernel.zygoteBootTimeout":         isStep,
	"policy.maxShells":                 isStep,
	"pyodide.maxTries":                 isStep,
	"pyodide.stackLimit":               isStep,
	"sessions.maxLockNote":             isStep,
	"wasipy.maxMemory":                 isStep,
	"cli.exitTimeout":                  isCode,
	"guest.ExitTimeout":                isCode,
	"probe.memoryLimit":                isProbe,
	"probe.processLimit":               isProbe,
	"cli.maxConfig":                    isLocal,
	"cli.maxSource":                    isLocal,
	"execserver.maxLinks":              isKernels,
	"cli.maxStatus":                    isText,
	"narrate.maxDiff":                  isText,
	"narrate.maxQuote":                 isText,
	"narrate.maxSaid":                  isText,
	"narrate.maxTitle":                 isText,
	"screen.maxMarks":                  isText,
	"isolate.maxIdle":                  isCache,
	"isolate.maxArgument":              isDerived,
	"screen.maxKeyboard":               isCache,
	"screen.maxParameter":              isCache,
	"screen.maxParams":                 isCache,
	"screen.maxPending":                isCache,
	"isolate.attemptTimeout":           isProbe,
}

// limitRowRE matches a row: what it limits, the constant, the value, the flag
// and the tests.
var limitRowRE = regexp.MustCompile("^\\| [^|]+ \\| `([^`|]+)` \\| ([^|]+) \\|([^|]*)\\| (`[^|]+`) \\|$")

var limitRE = regexp.MustCompile(`^([0-9,]+) ?(KiB|MiB|GiB|days)?$`)

// parseLimit reads a number, a size or a duration.
func parseLimit(s string) (int64, error) {
	m := limitRE.FindStringSubmatch(s)
	if m == nil {
		d, err := time.ParseDuration(s)
		return int64(d), err
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	unit := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "days": int64(24 * time.Hour)}
	return n * unit[m[2]], err
}

// constants are the constants and variables of the tree, as package.name.
type constants map[string]ast.Expr

func newConstants(t *testing.T) constants {
	t.Helper()
	all := constants{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin" || name == "bench" || name == "tools" || name == "examples" ||
			name == "internal/torture" || strings.HasSuffix(name, "test") || name == "internal/testcache"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST && g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i := range min(len(v.Names), len(v.Values)) {
					all[file.Name.Name+"."+v.Names[i].Name] = v.Values[i]
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// timeUnits are the constants of package time that limits use.
var timeUnits = map[string]time.Duration{
	"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// value returns the value of a constant.
func (c constants) value(name string) (int64, error) {
	expr, ok := c[name]
	if !ok {
		return 0, fmt.Errorf("no constant %s", name)
	}
	pkg, _, _ := strings.Cut(name, ".")
	v, err := c.eval(pkg, expr)
	if err != nil {
		return 0, err
	}
	n, ok := constant.Int64Val(constant.ToInt(v))
	if !ok {
		return 0, fmt.Errorf("%s is not a whole number", name)
	}
	return n, nil
}

func (c constants) eval(pkg string, e ast.Expr) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), nil
	case *ast.ParenExpr:
		return c.eval(pkg, e.X)
	case *ast.Ident:
		if other, ok := c[pkg+"."+e.Name]; ok {
			return c.eval(pkg, other)
		}
	case *ast.SelectorExpr:
		of := e.X.(*ast.Ident).Name
		if unit, ok := timeUnits[e.Sel.Name]; ok && of == "time" {
			return constant.MakeInt64(int64(unit)), nil
		}
		if other, ok := c[of+"."+e.Sel.Name]; ok {
			return c.eval(of, other)
		}
	case *ast.BinaryExpr:
		x, err := c.eval(pkg, e.X)
		if err != nil {
			return nil, err
		}
		y, err := c.eval(pkg, e.Y)
		if err != nil {
			return nil, err
		}
		switch e.Op {
		case token.SHL, token.SHR:
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(n)), nil
		case token.QUO:
			return constant.BinaryOp(x, token.QUO_ASSIGN, y), nil
		}
		return constant.BinaryOp(x, e.Op, y), nil
	}
	return nil, fmt.Errorf("cannot evaluate %T", e)
}
