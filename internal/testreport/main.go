// Command testreport reads the output of `go test -json` and shows what a person wants to know:
// each package with its time, everything a failed test said, and every skipped test with its
// reason. At the end it shows the slowest tests, how each failure began, and a count. It exits with
// 1 when a test failed, when none ran, or, with -noskip, when one was skipped.
//
//	go test -json ./... | go run ./internal/testreport -noskip
package main

import (
	"flag"
	"io"
	"os"
)

func main() {
	noSkip := flag.Bool("noskip", false, "a skipped test is a failure")
	raw := flag.String("raw", "", "also copy the events to this file")
	flag.Parse()

	in := io.Reader(os.Stdin)
	if *raw != "" {
		f, err := os.Create(*raw)
		if err != nil {
			fail(err)
		}
		defer func() { _ = f.Close() }()
		in = io.TeeReader(in, f)
	}
	r := newReport(os.Stdout)
	if err := r.read(in); err != nil {
		fail(err)
	}
	if !r.close(*noSkip) {
		os.Exit(1)
	}
}

func fail(err error) {
	_, _ = io.WriteString(os.Stderr, "testreport: "+err.Error()+"\n")
	os.Exit(2)
}
