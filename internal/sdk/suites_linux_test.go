package sdk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spool-run/spool/internal/host/backendtest"
)

// suites are the tests of the SDKs that mirror those of backends.
var suites = map[string]struct {
	files      string         // pattern of the files with the tests
	test       *regexp.Regexp // what a test begins with; its group is the name
	exceptions string         // a JSON object: the tests that a client does not have, and why
}{
	"typescript": {
		files:      typescriptDir + "/test/suite/*.js",
		test:       regexp.MustCompile(`(?m)^test\("([a-z0-9_]+)"`),
		exceptions: typescriptDir + "/test/exceptions.json",
	},
}

// TestSuites compares the names of the tests of each SDK with those of the suite of
// backends. A test that no client can have needs a reason.
func TestSuites(t *testing.T) {
	for language, suite := range suites {
		t.Run(language, func(t *testing.T) {
			files, err := filepath.Glob(suite.files)
			if err != nil || len(files) == 0 {
				t.Fatalf("no tests in %s: %v", suite.files, err)
			}
			has := make(map[string]bool)
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, found := range suite.test.FindAllSubmatch(text, -1) {
					has[string(found[1])] = true
				}
			}
			text, err := os.ReadFile(suite.exceptions)
			if err != nil {
				t.Fatal(err)
			}
			var exceptions map[string]string
			if err := json.Unmarshal(text, &exceptions); err != nil {
				t.Fatalf("%s: %v", suite.exceptions, err)
			}
			for _, name := range backendtest.Names() {
				reason, excepted := exceptions[name]
				delete(exceptions, name)
				switch {
				case has[name] && excepted:
					t.Errorf("%s has the test %s, and an exception for it", language, name)
				case excepted && reason == "":
					t.Errorf("%s has no reason to be without the test %s", language, name)
				case !has[name] && !excepted:
					t.Errorf("%s has no test %s; if it cannot have one, %s says why", language, name, suite.exceptions)
				}
			}
			for name := range exceptions {
				t.Errorf("%s has an exception for %s, which backends do not test", language, name)
			}
		})
	}
}
