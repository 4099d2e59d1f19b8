//go:build unix

package prove

import (
	"os/exec"
	"syscall"
)

// own puts the program into a process group of its own, so that its children die with it.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killAll(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
