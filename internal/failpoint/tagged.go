//go:build failpoint

package failpoint

// A program built with this tag arms its points from the environment.
func init() {
	if err := FromEnv(); err != nil {
		panic(err)
	}
}
