package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// A finding is one finding of a rule.
type breach struct {
	path    string
	line    int
	rule    string
	message string
}

func (f breach) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.message)
}

// lint writes the documents below a temporary directory and runs vale over it, with the vale.ini of
// the given directory.
func lint(ctx context.Context, vale, config string, docs []document) ([]breach, error) {
	dir, err := os.MkdirTemp("", "onceward-prose.")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	byName := map[string]*document{}
	for i := range docs {
		name := docs[i].path + docs[i].kind
		byName[name] = &docs[i]
		if err := docs[i].write(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return nil, err
		}
	}
	config, err = filepath.Abs(filepath.Join(config, "vale.ini"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, vale, "--config", config, "--no-global", "--no-exit",
		"--output", "JSON", ".")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err,
			stderr.Bytes(), out)
	}
	return parse(out, byName)
}

// An alert is how vale reports one breach.
type alert struct {
	Check   string
	Message string
	Line    int
	Span    []int
}

// parse maps vale's answer back to the files that the documents are from.
func parse(answer []byte, docs map[string]*document) ([]breach, error) {
	var alerts map[string][]alert
	if err := json.Unmarshal(answer, &alerts); err != nil {
		return nil, fmt.Errorf("vale's answer: %w\n%s", err, answer)
	}
	var breaches []breach
	for name, list := range alerts {
		doc := docs[strings.TrimPrefix(filepath.ToSlash(name), "./")]
		if doc == nil {
			return nil, errors.New("vale reports a file that it was not given: " + name)
		}
		for _, a := range list {
			at, ok := 0, false
			if len(a.Span) > 0 {
				at, ok = doc.source(a.Line, a.Span[0])
			}
			if !ok {
				return nil, fmt.Errorf("vale reports line %d of %s, which does not exist",
					a.Line, name)
			}
			breaches = append(breaches,
				breach{doc.path, at, strings.TrimPrefix(a.Check, "Onceward."), a.Message})
		}
	}
	sort.Slice(breaches, func(i, j int) bool {
		a, b := breaches[i], breaches[j]
		if a.path != b.path {
			return a.path < b.path
		}
		if a.line != b.line {
			return a.line < b.line
		}
		return a.rule+a.message < b.rule+b.message
	})
	return breaches, nil
}
