// Package examplestest builds the programs of the module in examples as any
// program outside this module is built, runs them and checks their output.
package examplestest
