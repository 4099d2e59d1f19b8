package database

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

// CPU returns a function that tells the CPU time of all processes of the server, as /proc
// has it; ok is false where it cannot be told: the server is not ours, or this is not Linux.
func (s *Server) CPU() (read func(context.Context) (time.Duration, error), ok bool) {
	if s.pid == 0 {
		return nil, false
	}
	read = func(context.Context) (time.Duration, error) { return familyTime("/proc", s.pid) }
	_, err := read(context.Background())
	return read, err == nil
}

// familyTime adds up a process, its children, and those of its children that have ended.
func familyTime(proc string, pid int) (time.Duration, error) {
	family, ended, err := members(proc, pid)
	if err != nil {
		return 0, err
	}
	total := ended
	for _, member := range family {
		threads, err := filepath.Glob(filepath.Join(proc, member, "task", "*", "schedstat"))
		if err != nil {
			return 0, fmt.Errorf("database: %w", err)
		}
		for _, file := range threads {
			spent, err := threadTime(file)
			if err != nil {
				return 0, err
			}
			total += spent
		}
	}
	return total, nil
}

// members returns pid and its children, and the time of those that have ended.
func members(proc string, pid int) (family []string, ended time.Duration, err error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return nil, 0, fmt.Errorf("database: %w", err)
	}
	self := strconv.Itoa(pid)
	found := false
	for _, file := range files {
		fields := statFields(file)
		name := filepath.Base(filepath.Dir(file))
		switch {
		case len(fields) < 15: // it has ended meanwhile
		case name == self:
			found = true
			family, ended = append(family, name), ticks(fields[13])+ticks(fields[14])
		case fields[1] == self:
			family = append(family, name)
		}
	}
	if !found {
		return nil, 0, fmt.Errorf("database: no process %d in %s", pid, proc)
	}
	return family, ended, nil
}

// statFields are those after the program's name, which may hold anything: state, parent, and,
// from the 13th, the time of ended children in user and in system.
func statFields(file string) []string {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	text := string(data)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

// ticks are hundredths of a second.
func ticks(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * 10 * time.Millisecond
}

// threadTime is what schedstat counts, in nanoseconds; 0 for a thread that has ended.
func threadTime(file string) (time.Duration, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, nil //nolint:nilerr // ESRCH: it ended between open and read
	}
	text, _, _ := strings.Cut(string(data), " ")
	nanos, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("database: %s is %q", file, data)
	}
	return time.Duration(nanos), nil
}
