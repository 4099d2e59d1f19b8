package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"
)

// home is the directory of this package below the root of the repository.
const home = "internal/prose"

// A document is the prose of one file, as vale reads it. Each of its lines is a paragraph. The
// prose of a Go file is written as HTML, in which a sentence ends with its paragraph, and only
// three characters are markup.
type document struct {
	path  string // of the file that the prose is from
	kind  string // the end of the document's own name, by which vale.ini chooses rules
	lines []line
}

// The kinds of documents.
const (
	markdown = ".page.md"
	comments = ".comments.html"
	literals = ".literals.html"
)

// The tags of a paragraph. harmless replaces characters that have a meaning in HTML.
const opening, closing = "<p>", "</p>"

var harmless = strings.NewReplacer("<", "(", ">", ")", "&", "+")

// write writes a document into a file, with the same line numbers.
func (d *document) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var b strings.Builder
	for _, l := range d.lines {
		text := l.text
		if d.kind != markdown {
			text = opening + harmless.Replace(text) + closing
		}
		b.WriteString(text + "\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// source returns the line of the file from which a place in the written document came. The place is
// a line and a column, from 1.
func (d *document) source(at, column int) (int, bool) {
	if at < 1 || at > len(d.lines) {
		return 0, false
	}
	if d.kind != markdown {
		column -= len(opening)
	}
	return d.lines[at-1].source(column), true
}

// A line is one paragraph. Its marks hold the line of the file from which each part of it came.
type line struct {
	text  string
	marks []mark
}

// A mark says from which line of the file the text came that begins at a column, counted in
// characters from 1.
type mark struct{ column, line int }

// add appends text that came from a line of the file, after a separator.
func (l *line) add(text, separator string, from int) {
	if text == "" {
		return
	}
	if l.text != "" {
		l.text += separator
	}
	l.marks = append(l.marks, mark{utf8.RuneCountInString(l.text) + 1, from})
	l.text += text
}

// source returns the line of the file from which a column came.
func (l *line) source(column int) int {
	from := 0
	for _, m := range l.marks {
		if from == 0 || m.column <= column {
			from = m.line
		}
	}
	return from
}

// collect reads the prose of all files below root, in the order of their paths.
func collect(root string) ([]document, error) {
	var docs []document
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name != "." && skipped(name) {
				return filepath.SkipDir
			}
			return nil
		}
		more, err := read(file, name)
		docs = append(docs, more...)
		return err
	})
	sort.Slice(docs, func(i, j int) bool {
		return docs[i].path+docs[i].kind < docs[j].path+docs[j].kind
	})
	return docs, err
}

// skipped reports whether a directory holds nothing to check: results of benchmarks, which programs
// write, inputs of tests, and names that begin with a dot.
func skipped(dir string) bool {
	base := path.Base(dir)
	return dir == "bench/results" || base == "testdata" || base == "node_modules" ||
		strings.HasPrefix(base, ".")
}

// read returns the documents of one file; none for a file of another kind.
func read(file, name string) ([]document, error) {
	switch path.Ext(name) {
	case ".md":
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return []document{{name, markdown, paragraphs(string(content))}}, nil
	case ".go":
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return readGo(name, content)
	}
	return nil, nil
}

// below reports whether name is dir or lies in it.
func below(name, dir string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}
