//go:build !race

package access_test

const race = false
