package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the time that the broker's process has used, as /proc tells it; ok is false where
// it cannot be told: the broker is not ours, or this is not Linux.
func (b *Broker) CPU() (read func(context.Context) (time.Duration, error), ok bool) {
	if b.pid == 0 {
		return nil, false
	}
	read = func(context.Context) (time.Duration, error) { return processTime("/proc", b.pid) }
	_, err := read(context.Background())
	return read, err == nil
}

// processTime adds up the threads' time on a processor: schedstat counts nanoseconds, where
// stat counts hundredths of a second. Go's runtime does not end threads, so none is missed.
func processTime(proc string, pid int) (time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return 0, fmt.Errorf("broker: %w", err)
	}
	var total time.Duration
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("broker: %w", err)
		}
		text, _, _ := strings.Cut(string(data), " ")
		nanos, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("broker: %s is %q", file, data)
		}
		total += time.Duration(nanos)
	}
	if total == 0 {
		return 0, fmt.Errorf("broker: no CPU time of process %d in %s", pid, proc)
	}
	return total, nil
}
