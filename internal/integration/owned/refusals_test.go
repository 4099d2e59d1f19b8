package owned_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// refusal is an end that was refused, as text. Nothing is judged by it; it helps a person who looks
// for the cause.
type refusal struct {
	child int
	at    int64
	text  string
}

func refusalName(dir string, child int) string {
	return filepath.Join(dir, "refusals-"+strconv.Itoa(child))
}

// refusedWith records why ends were refused.
func (c *consumer) refusedWith(ends int, sent int64, err error) {
	f, failed := os.OpenFile(refusalName(c.cfg.Dir, c.cfg.Child),
		os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if failed != nil {
		panic(failed)
	}
	defer f.Close() //nolint:errcheck // nothing depends on it
	now := time.Now()
	text := fmt.Sprintf("%v epoch %d: %d ends, sent %v before: %v; the partition: %v", c.where,
		c.epoch.Load(), ends,
		time.Duration(now.UnixNano()-sent).Round(time.Millisecond),
		err, context.Cause(c.o.Context()))
	if _, err := fmt.Fprintf(f, "%d %s\n", now.UnixNano(),
		strings.ReplaceAll(text, "\n", ", ")); err != nil {
		panic(err)
	}
}

// readRefusals reads the refusals of all processes.
func readRefusals(dir string) (all []refusal, err error) {
	names, err := filepath.Glob(refusalName(dir, 0)[:len(refusalName(dir, 0))-1] + "*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name) // a file of the test
		if err != nil {
			return nil, err
		}
		_, number, _ := strings.Cut(filepath.Base(name), "-")
		child, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			at, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			ns, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				continue // the process was killed while it wrote
			}
			all = append(all, refusal{child, ns, text})
		}
	}
	return all, nil
}

// refusalsNear returns the refusals of a process near a time.
func (h *history) refusalsNear(child int, at int64) (near []refusal) {
	for _, r := range h.refusals {
		if r.child == child && r.at > at-int64(time.Second) && r.at < at+int64(time.Second) {
			near = append(near, r)
		}
	}
	return near
}
