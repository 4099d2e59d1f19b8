package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json` and, for builds, `go help
// buildjson`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// name is what an event is about: a package, or a test in it.
type name struct{ pkg, test string }

type slow struct {
	name
	seconds float64
}

// report holds the output of tests that have not passed, or not yet.
type report struct {
	w                       io.Writer
	said                    map[name][]string
	passed, failed, skipped int
	slow                    []slow
	skips                   []string
	failures                []failure
	broken                  bool // a package failed, perhaps without a failed test
}

// failure is what the end of the report repeats of a test that failed, or of a package that failed
// for another reason.
type failure struct {
	name
	said []string
}

func newReport(w io.Writer) *report {
	return &report{w: w, said: map[name][]string{}}
}

func (r *report) printf(format string, args ...any) { _, _ = fmt.Fprintf(r.w, format, args...) }

// read handles events until the input ends. It shows other lines as they are: the go command prints
// some of its own errors as plain text.
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
		r.fail(n)
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
		r.fail(name{e.Package, ""})
	}
	if e.Action == "skip" {
		r.printf("%s\t%s\t[no test files]\n", label, e.Package)
		return
	}
	r.printf("%s\t%s\t%.3fs\n", label, e.Package, e.Elapsed)
}

// showUnfinished shows the output of tests that never ended, because of a panic or a timeout.
func (r *report) showUnfinished(pkg string) {
	for n := range r.said {
		if n.pkg == pkg && n.test != "" {
			r.fail(n)
			delete(r.said, n)
		}
	}
}

// fail shows the output of a test or a package, and keeps it for the end, because of a long log
// people often see only the tail. It keeps nothing of a test that only says that its subtests
// failed.
func (r *report) fail(n name) {
	lines := telling(r.said[n])
	r.show(lines)
	if slices.ContainsFunc(lines, func(s string) bool {
		return !strings.HasPrefix(strings.TrimSpace(s), "--- ")
	}) {
		r.failures = append(r.failures, failure{n, lines})
	}
}

// telling leaves out the lines that only say that a test began or paused, and the last line of a
// package, which we write ourselves.
func telling(said []string) []string {
	return slices.DeleteFunc(slices.Clone(said), func(s string) bool {
		return strings.HasPrefix(s, "=== ") || strings.HasPrefix(s, "FAIL\t") || s == "FAIL\n"
	})
}

// show prints lines; if there are very many, only the first and the last ones.
func (r *report) show(lines []string) {
	const most = 400
	if len(lines) > most {
		r.printf("%s\n  ... %d lines left out ...\n", strings.Join(lines[:most/2], ""),
			len(lines)-most)
		lines = lines[len(lines)-most/2:]
	}
	r.printf("%s", strings.Join(lines, ""))
}

// reason is the last line that a skipped test printed before it was reported as skipped.
func reason(said []string) string {
	for _, s := range slices.Backward(said) {
		s = strings.TrimSpace(s)
		if s != "" && !strings.HasPrefix(s, "--- ") && !strings.HasPrefix(s, "=== ") {
			return s
		}
	}
	return "no reason given"
}

// showFailures repeats the first lines of each failure, and says how many more are above.
func (r *report) showFailures() {
	const most, widest = 15, 400
	if len(r.failures) > 0 {
		r.printf("failed tests:\n")
	}
	for _, f := range r.failures {
		r.printf("  %s  %s\n", cmp.Or(f.test, "(the package)"), f.pkg)
		for _, line := range f.said[:min(len(f.said), most)] {
			line = strings.TrimRight(line, "\n")
			r.printf("    %s\n", line[:min(len(line), widest)])
		}
		if more := len(f.said) - most; more > 0 {
			r.printf("    ... and %d lines more, above\n", more)
		}
	}
}

// close prints the summary and reports whether all is well.
func (r *report) close(noSkip bool) bool {
	slices.SortFunc(r.slow, func(a, b slow) int {
		return int(b.seconds*1000) - int(a.seconds*1000)
	})
	if len(r.slow) > 0 {
		r.printf("slowest tests:\n")
	}
	for _, s := range r.slow[:min(len(r.slow), 10)] {
		r.printf("  %6.1fs  %s  %s\n", s.seconds, s.test, s.pkg)
	}
	for _, s := range r.skips {
		r.printf("skipped: %s\n", s)
	}
	r.showFailures()
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
