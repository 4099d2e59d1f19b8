package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// build is what a bug report needs.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand() *cli.Command {
	var asJSON bool
	return &cli.Command{
		Use: "version", Short: "Show which build this is: version, commit and Go",
		Exits: map[int]string{cli.Usage: "wrong usage"},
		Flags: func(f *cli.Flags) { f.BoolVar(&asJSON, "json", false, "write JSON") },
		Run: func(_ context.Context, s *cli.Streams) error {
			if asJSON {
				return cli.WriteJSON(s.Out, version())
			}
			_, err := fmt.Fprintln(s.Out, version())
			return err
		},
	}
}

func version() *build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	set := make(map[string]string)
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	return &build{
		Version: cmp.Or(info.Main.Version, "unknown"),
		Commit:  cmp.Or(set["vcs.revision"], "unknown"), Modified: set["vcs.modified"] == "true",
		Time: set["vcs.time"], Go: cmp.Or(info.GoVersion, "unknown Go"),
		Platform: cmp.Or(set["GOOS"], "unknown") + "/" + cmp.Or(set["GOARCH"], "unknown"),
	}
}

// String formats the build on one line.
func (b *build) String() string {
	commit := b.Commit
	if b.Modified {
		commit += " (with changes)"
	}
	if b.Time != "" {
		commit += " of " + b.Time
	}
	return fmt.Sprintf("onceward %s, commit %s, %s, %s", b.Version, commit, b.Go, b.Platform)
}
