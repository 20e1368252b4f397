package cli

import "testing"

func TestCompleteSource(t *testing.T) {
	for source, want := range map[string]bool{
		"1 + 1":                    true,
		"":                         true,
		"if x:":                    false,
		"if x:\n    y":             false,
		"if x:\n    y\n":           true,
		"if x: y":                  true,
		"f(":                       false,
		"f(\n1)":                   true,
		"f(')'":                    false,
		"x = '''":                  false,
		"x = '''\na\n'''":          true,
		"x = 'a # b'":              true,
		"x = 1 # (":                true,
		"x = 'it\\'s'":             true,
		"x = 'open":                true, // Python reports the error
		"x = 1 + \\":               false,
		"x = 1 + \\\n2":            true,
		"@decorator":               false,
		"@decorator\ndef f():":     false,
		"%%bash":                   false,
		"%%bash\nls":               false,
		"%%bash\nls\n":             true,
		"{'a': 1}":                 true,
		"{'a':\n1}":                true,
		"lambda: 1":                true,
		"x[1:]":                    true,
		"class A:\n    # nothing:": false,
		")":                        true,
		"r'\\'":                    true,
	} {
		if got := completeSource(source); got != want {
			t.Errorf("%q: %v", source, got)
		}
	}
}

func FuzzCompleteSource(f *testing.F) {
	f.Add("if x:\n    '''a\\")
	f.Fuzz(func(t *testing.T, source string) {
		if completeSource(source+"\n") && completeSource(source) {
			return
		}
		if !completeSource(source+"\n\n") && !scanSource(source+"\n\n").open && !scanSource(source+"\n\n").continued {
			t.Errorf("%q is not ended by an empty line", source)
		}
	})
}
