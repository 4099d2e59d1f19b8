package skipreport

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// parentStderr opens the standard error of the go command that runs us.
//
// The best way is a duplicate of its descriptor, which shares the position in a file; the kernel
// allows that to processes that may trace the parent. Every process may open /proc/<parent>/fd/2,
// but that has a position of its own: in a file not opened for appending, the go command's next
// line would overwrite ours. So it is used only for terminals, pipes and appended files.
func parentStderr() (*os.File, error) {
	parent := os.Getppid()
	if f, err := duplicate(parent, 2); err == nil {
		return f, nil
	}
	path := fmt.Sprintf("/proc/%d/fd/2", parent)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() && !appends(parent) {
		return nil, fmt.Errorf("%s is a file that is not appended to", path)
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
}

// duplicate is pidfd_getfd(2), Linux 5.6. The numbers are the same on every architecture.
func duplicate(pid, fd int) (*os.File, error) {
	const pidfdOpen, pidfdGetfd = 434, 438
	pidfd, _, errno := syscall.Syscall(pidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return nil, errno
	}
	defer func() { _ = syscall.Close(int(pidfd)) }()
	dup, _, errno := syscall.Syscall(pidfdGetfd, pidfd, uintptr(fd), 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(dup, "stderr of the go command"), nil
}

// appends reports whether a process opened its standard error for appending.
func appends(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/2", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var flags int
		if _, err := fmt.Sscanf(line, "flags: %o", &flags); err == nil {
			return flags&syscall.O_APPEND != 0
		}
	}
	return false
}
