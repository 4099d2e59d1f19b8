package sqlmigrate

import (
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// memory is a directory of files that exist in memory only: name and text.
type memory map[string]string

func (m memory) Open(name string) (fs.File, error) {
	if text, ok := m[name]; ok {
		return &file{info: info{name, int64(len(text))}, Reader: strings.NewReader(text)}, nil
	}
	if name == "." {
		return &directory{left: m.list()}, nil
	}
	why := fs.ErrNotExist
	if !fs.ValidPath(name) {
		why = fs.ErrInvalid
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: why}
}

func (m memory) list() []fs.DirEntry {
	var entries []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(m)) {
		entries = append(entries, fs.FileInfoToDirEntry(info{name, int64(len(m[name]))}))
	}
	return entries
}

type file struct {
	info
	*strings.Reader
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }
func (f *file) Size() int64                { return f.info.Size() }

type directory struct {
	root
	left []fs.DirEntry
}

func (d *directory) Stat() (fs.FileInfo, error) { return d.root, nil }
func (d *directory) Close() error               { return nil }
func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: ".", Err: fs.ErrInvalid}
}

func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.left)
	} else if len(d.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	entries := d.left[:n]
	d.left = d.left[n:]
	return entries, nil
}

// info describes a file. It has no time, because no time would mean anything.
type info struct {
	name string
	size int64
}

func (i info) Name() string     { return i.name }
func (i info) Size() int64      { return i.size }
func (info) Mode() fs.FileMode  { return 0o444 }
func (info) ModTime() time.Time { return time.Time{} }
func (info) IsDir() bool        { return false }
func (info) Sys() any           { return nil }

type root struct{ info }

func (root) Name() string      { return "." }
func (root) Mode() fs.FileMode { return fs.ModeDir | 0o555 }
func (root) IsDir() bool       { return true }
