// Package racebuild lets tests build programs from the packages that are compiled already: with
// -race or without it, like the test itself.
package racebuild

import "runtime/debug"

// Flags returns -race if this binary was built with it, and nothing otherwise. They are flags of go
// build, go list and go test.
func Flags() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			return []string{"-race"}
		}
	}
	return nil
}
