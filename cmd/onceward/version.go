package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime/debug"
)

// version writes what a report of a bug needs.
func version(_ context.Context, args []string, out, errOut io.Writer) int {
	if len(args) > 0 && args[0] == "-h" {
		fmt.Fprint(out, "Usage: onceward version\n\nSays which build this is: its version, commit and Go.\n\nExit code: 0.\n")
		return 0
	}
	if len(args) > 0 {
		fmt.Fprintf(errOut, "onceward version: unexpected argument %q\n", args[0])
		return 2
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	fmt.Fprintln(out, describe(info))
	return 0
}

// describe is the build on one line.
func describe(info *debug.BuildInfo) string {
	set := make(map[string]string)
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	commit := cmp.Or(set["vcs.revision"], "unknown")
	if set["vcs.modified"] == "true" {
		commit += " (with changes)"
	}
	if at := set["vcs.time"]; at != "" {
		commit += " of " + at
	}
	return fmt.Sprintf("onceward %s, commit %s, %s, %s/%s",
		cmp.Or(info.Main.Version, "unknown"), commit, cmp.Or(info.GoVersion, "unknown Go"),
		cmp.Or(set["GOOS"], "unknown"), cmp.Or(set["GOARCH"], "unknown"))
}
