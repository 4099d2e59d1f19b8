package owned_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fault is something that happens to processes. It returns false if it could not happen, and is
// then tried again.
type fault func(c *conductor) bool

// kill is SIGKILL. Other processes get some of the partitions of the killed one; its successor gets
// the rest.
func kill(c *conductor) bool {
	s := c.running()
	if s == nil {
		return false
	}
	c.h.deaths[s.now.child] = time.Now().UnixNano()
	c.h.killed++
	s.now.killed = true
	_ = s.now.cmd.Process.Signal(syscall.SIGKILL)
	c.buried(s, <-s.now.ended)
	for _, where := range sorted(s.wanted) {
		if c.rng.IntN(10) < 4 {
			delete(s.wanted, where)
			c.want(c.other(s), where)
		}
	}
	return true
}

// stop is SIGSTOP for longer than a lease, while other processes want the partitions of the stopped
// one.
func stop(c *conductor) bool {
	s := c.running()
	if s == nil {
		return false
	}
	for _, other := range c.slots {
		if other.now == nil || other != s && other.now.stopped > 0 {
			return false // some process has to work
		}
	}
	c.h.counts.stops++
	s.now.stopped = time.Now().UnixNano()
	s.now.resume = time.Now().Add(c.h.lease + time.Duration(c.rng.Int64N(int64(c.h.lease))))
	_ = s.now.cmd.Process.Signal(syscall.SIGSTOP)
	for _, where := range sorted(s.wanted) {
		if c.rng.IntN(10) < 5 {
			c.want(c.other(s), where)
		}
	}
	return true
}

// falter is SIGSTOP for about half a lease: no other process may notice it.
func falter(c *conductor) bool {
	s := c.running()
	if s == nil {
		return false
	}
	s.now.stopped = time.Now().UnixNano()
	s.now.resume = time.Now().Add(c.h.lease / 2)
	_ = s.now.cmd.Process.Signal(syscall.SIGSTOP)
	return true
}

// handOver releases a partition and has another process acquire it.
func handOver(c *conductor) bool {
	all := c.partitions()
	c.move(all[c.rng.IntN(len(all))], 1)
	return true
}

// race makes two processes acquire one partition.
func race(c *conductor) bool {
	all := c.partitions()
	c.move(all[c.rng.IntN(len(all))], 2)
	return true
}

// move takes a partition from all processes that have or want it, and makes others want it.
func (c *conductor) move(where partition, others int) {
	var had *slot
	for _, s := range c.slots {
		if s.wanted[where] {
			had = s
			c.drop(s, where)
		}
	}
	for range others {
		c.want(c.other(had), where)
	}
}

// restore replaces snapshots with ones that are older than the marks.
func restore(c *conductor) bool {
	for source := range c.cfg.Sources {
		dir := snapshotDir(c.cfg.Dir, uint8(source))
		old := filepath.Join(c.backup, filepath.Base(dir))
		if n := copyTree(c, old, dir); n > 0 {
			c.h.counts.restored++
		}
		copyTree(c, dir, old)
	}
	return true
}

// backUp keeps the first snapshots, for restore.
func (c *conductor) backUp() {
	if c.backed || time.Since(c.looked) < 200*time.Millisecond {
		return
	}
	c.looked = time.Now()
	for source := range c.cfg.Sources {
		dir := snapshotDir(c.cfg.Dir, uint8(source))
		c.backed = copyTree(c, dir, filepath.Join(c.backup, filepath.Base(dir))) > 0 || c.backed
	}
}

// copyTree replaces files with those of another directory.
func copyTree(c *conductor, from, to string) (n int) {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a snapshot that is being replaced
		}
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".restored") {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		n++
		return copyFile(path, filepath.Join(to, rel))
	})
	c.must(err)
	return n
}

// copyFile replaces a file atomically, and copies the other file's time, which says how long a
// snapshot is valid.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(to+".restored", text, 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(to+".restored", info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	return os.Rename(to+".restored", to)
}

// raise adds a partition to a source. The process that acquires it changes the mapping, and may be
// killed at any step of that; others learn of it when they next acquire a partition.
func raise(c *conductor) bool {
	s := c.running()
	if s == nil {
		return false
	}
	source := uint8(c.rng.IntN(len(c.cfg.Sources)))
	c.count[source]++
	c.must(c.feed.setCount(source, c.count[source]))
	c.h.counts.raised++
	if c.rng.IntN(4) > 0 {
		c.say(s, "remap", partition{uint8(1 + c.rng.IntN(int(c.count[source])+3)), 0})
	}
	c.want(s, partition{source, uint16(c.count[source] - 1)})
	return true
}
