package harness

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// ProcessCPU is the CPU time that this process has used, user and system.
func ProcessCPU() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// machineCPU is the time that the processors of this machine were busy since its start, or
// 0 where /proc does not say. User has the time of guests already.
func machineCPU() time.Duration {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0
	}
	t := stat.CPUTotal
	return time.Duration((t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ +
		t.Steal) * float64(time.Second))
}

// machine says what this runs on, without its name.
func machine() string {
	text := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if info, err := proc.CPUInfo(); err == nil && len(info) > 0 && info[0].ModelName != "" {
			text += ", " + info[0].ModelName
		}
	}
	return text
}

// commit is the checked-out commit, with a '+' where files differ from it, or "unknown".
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	// Results themselves may differ: they are what a run writes.
	dirty, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no",
		"--", ":/", ":!/bench/results", ":!/docs/benchmarks.md", ":!/docs/front.md").Output()
	if err == nil && len(dirty) > 0 {
		commit += "+"
	}
	return commit
}

// versions are those of Go and of the modules, which are given by path and named by the value.
func versions(modules map[string]string) map[string]string {
	all := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if name, wanted := modules[dep.Path]; wanted {
				all[name] = strings.TrimPrefix(dep.Version, "v")
			}
		}
	}
	return all
}
