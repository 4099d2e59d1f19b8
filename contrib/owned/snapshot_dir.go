package owned

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	snapshotSuffix = ".snapshot"
	partSuffix     = ".part"
	// partLives is how long a file may take to be written: an older one is of a process that died.
	partLives = time.Hour
)

// Dir keeps snapshots as files of a directory, which must exist: one file for each generation of
// each partition that this process has owned. Where partitions move between machines, the directory
// is shared, or the next owner reads the marks. Files are readable for their owner alone, are
// replaced by renaming and synced to the disk before; those whose time is over are removed with the
// next one that is stored. The directory belongs to snapshots alone: whatever else has names that
// end in ".snapshot" is removed, too, when it is old.
//
// A file system that hangs delays loading by half a minute for each snapshot, and nothing else.
func Dir(path string) Snapshots { return dir(path) }

type dir string

// path escapes everything that could leave the directory or make a bad file name.
func (d dir) path(name string) string {
	return filepath.Join(string(d), url.QueryEscape(name)+snapshotSuffix)
}

// Load implements [Snapshots].
func (d dir) Load(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, fmt.Errorf("owned: snapshot: %w", err)
	}
	return f, nil
}

// Store implements [Snapshots].
func (d dir) Store(ctx context.Context, name string, keep time.Duration, r io.Reader) error {
	path := d.path(name)
	f, err := os.CreateTemp(string(d), filepath.Base(path)+".*"+partSuffix) // mode 0600
	if err != nil {
		return fmt.Errorf("owned: snapshot: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // after the rename there is none
	_, err = io.Copy(f, reading{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		now := time.Now()
		err = os.Chtimes(f.Name(), now, now.Add(keep))
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = d.sync()
	}
	if err != nil {
		return fmt.Errorf("owned: snapshot: %w", err)
	}
	d.prune(time.Now())
	return nil
}

// sync makes the rename outlive a crash of the machine.
func (d dir) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// prune removes what nobody asks for any more: snapshots whose time, which is that of their last
// change, has come, and what a process that died has left half-written. A file that cannot be
// removed stays.
func (d dir) prune(now time.Time) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return
	}
	for _, e := range entries {
		until := time.Duration(0)
		switch {
		case strings.HasSuffix(e.Name(), partSuffix) &&
			strings.Contains(e.Name(), snapshotSuffix+"."):
			until = partLives
		case !strings.HasSuffix(e.Name(), snapshotSuffix):
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() &&
			info.ModTime().Add(until).Before(now) {
			_ = os.Remove(filepath.Join(string(d), e.Name()))
		}
	}
}

// reading is a reader that ends with its context.
type reading struct {
	ctx context.Context //nolint:containedctx // of one call of Store
	r   io.Reader
}

func (r reading) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}
