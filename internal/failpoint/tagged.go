//go:build failpoint

package failpoint

// A program that is built for tests is armed by its environment.
func init() {
	if err := FromEnv(); err != nil {
		panic(err)
	}
}
