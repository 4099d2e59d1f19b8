package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// cpuModel is the processor's name as Linux tells it, or "".
func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Commit is the checked-out commit, with a '+' where files differ from it, or "unknown".
func Commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	// Results themselves may differ: they are what a run writes.
	dirty, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/bench/results", ":!/docs/benchmarks.md", ":!/docs/front.md").Output()
	if err == nil && len(dirty) > 0 {
		commit += "+"
	}
	return commit
}

// Versions are Go's and those of the modules named, by the last part of their path.
func Versions(modules map[string]string) map[string]string {
	versions := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, dep := range info.Deps {
		if name, wanted := modules[dep.Path]; wanted {
			versions[name] = strings.TrimPrefix(dep.Version, "v")
		}
	}
	return versions
}

// Machine says what this runs on, without its name.
func Machine() string {
	text := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	if model := cpuModel(); model != "" {
		text += ", " + model
	}
	return text
}
