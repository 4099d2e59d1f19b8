package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json` and, for builds, `go help buildjson`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// name is what an event is about: a package, or a test in one.
type name struct{ pkg, test string }

type slow struct {
	name
	seconds float64
}

// report holds what has been said by tests that have not ended well.
type report struct {
	w                       io.Writer
	said                    map[name][]string
	passed, failed, skipped int
	slow                    []slow
	skips                   []string
	broken                  bool // a package failed, be it without a failed test
}

func newReport(w io.Writer) *report {
	return &report{w: w, said: map[name][]string{}}
}

func (r *report) printf(format string, args ...any) { _, _ = fmt.Fprintf(r.w, format, args...) }

// read handles events until the input ends. What is not an event is shown as it is: the go command
// prints some of its own errors as plain text.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				r.printf("%s", line)
			} else {
				r.handle(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) handle(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.printf("%s", e.Output)
	case "build-fail":
		r.broken = true
	case "output":
		r.said[n] = append(r.said[n], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnded(e)
		} else {
			r.testEnded(n, e)
		}
		delete(r.said, n)
	}
}

func (r *report) testEnded(n name, e event) {
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", n.pkg, n.test, reason(r.said[n])))
	case "fail":
		r.failed++
		r.show(n)
	}
	if e.Elapsed >= 1 && !strings.Contains(n.test, "/") {
		r.slow = append(r.slow, slow{n, e.Elapsed})
	}
}

func (r *report) packageEnded(e event) {
	label := map[string]string{"pass": "ok  ", "fail": "FAIL", "skip": "?   "}[e.Action]
	if e.Action == "fail" {
		r.broken = true
		r.showUnfinished(e.Package)
		r.show(name{e.Package, ""})
	}
	if e.Action == "skip" {
		r.printf("%s\t%s\t[no test files]\n", label, e.Package)
		return
	}
	r.printf("%s\t%s\t%.3fs\n", label, e.Package, e.Elapsed)
}

// showUnfinished shows what tests said that never ended: those a panic or a timeout cut short.
func (r *report) showUnfinished(pkg string) {
	for n := range r.said {
		if n.pkg == pkg && n.test != "" {
			r.show(n)
			delete(r.said, n)
		}
	}
}

// show prints what a test or a package said, without the lines that only tell that a test began or
// paused, and without the package's own last line, which we write. Of a very long text the
// beginning and the end are shown.
func (r *report) show(n name) {
	const most = 400
	lines := slices.DeleteFunc(slices.Clone(r.said[n]), func(s string) bool {
		return strings.HasPrefix(s, "=== ") || strings.HasPrefix(s, "FAIL\t") || s == "FAIL\n"
	})
	if len(lines) > most {
		r.printf("%s\n  ... %d lines left out ...\n", strings.Join(lines[:most/2], ""), len(lines)-most)
		lines = lines[len(lines)-most/2:]
	}
	r.printf("%s", strings.Join(lines, ""))
}

// reason is the last thing that a skipped test said before it was reported as skipped.
func reason(said []string) string {
	for _, s := range slices.Backward(said) {
		s = strings.TrimSpace(s)
		if s != "" && !strings.HasPrefix(s, "--- ") && !strings.HasPrefix(s, "=== ") {
			return s
		}
	}
	return "no reason given"
}

// close prints the summary and reports whether all is well.
func (r *report) close(noSkip bool) bool {
	slices.SortFunc(r.slow, func(a, b slow) int { return int(b.seconds*1000) - int(a.seconds*1000) })
	if len(r.slow) > 0 {
		r.printf("slowest tests:\n")
	}
	for _, s := range r.slow[:min(len(r.slow), 10)] {
		r.printf("  %6.1fs  %s  %s\n", s.seconds, s.test, s.pkg)
	}
	for _, s := range r.skips {
		r.printf("skipped: %s\n", s)
	}
	ok := r.failed == 0 && !r.broken
	if r.skipped > 0 && noSkip {
		r.printf("a skipped test counts as a failure here\n")
		ok = false
	}
	if r.passed+r.failed+r.skipped == 0 {
		r.printf("no test ran\n")
		ok = false
	}
	r.printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return ok
}
