//go:build race

package demo_test

var raceFlags = []string{"-race"}
