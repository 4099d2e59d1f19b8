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
	// partLives is how long writing a file may take. A half-written file that is older was left by
	// a process that died.
	partLives = time.Hour
)

// Dir keeps snapshots as files of a directory, which must exist: one file for each generation of
// each partition that this process has owned. If partitions move between machines, share the
// directory; otherwise the next owner reads the marks. Only the files' owner can read them. A file
// is synced to the disk, and then replaces the old one by a rename. Storing a snapshot removes the
// files whose time is over. Use the directory for snapshots alone: any other file whose name ends
// in ".snapshot" is removed, too, when it is old.
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
	defer func() { _ = os.Remove(f.Name()) }() // after the rename this file does not exist
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

// sync makes sure that the rename survives a crash of the machine.
func (d dir) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// prune removes the files that nobody asks for any more. These are snapshots whose modification
// time has come, because Store sets that to the end of their life, and half-written files of
// processes that died. A file that cannot be removed stays.
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

// reading is a reader whose reads fail once its context ends.
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
