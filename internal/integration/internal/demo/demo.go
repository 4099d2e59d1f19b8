// Package demo runs `onceward demo --listen`, whose pages and metrics tests look at.
package demo

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Demo is a run. It is ended with the test.
type Demo struct {
	// Host is the host:port of its console and metrics.
	Host  string
	t     *testing.T
	lines chan string
	said  []string
}

var address = regexp.MustCompile(`Console: http://(\S+)/ `)

// Start builds the command and starts its demo with further flags.
func Start(t *testing.T, flags ...string) *Demo {
	t.Helper()
	program := filepath.Join(t.TempDir(), "onceward")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/onceward/onceward/cmd/onceward").CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(),
		program, append([]string{"demo", "--listen", "127.0.0.1:0"}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended by then
	d := &Demo{t: t, lines: make(chan string)}
	go func() {
		defer close(d.lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			select {
			case d.lines <- scan.Text():
			case <-t.Context().Done():
			}
		}
	}()
	d.Host = address.FindStringSubmatch(d.Await("Console: "))[1]
	return d
}

// Await returns the next line that has text in it. It is fatal that there is none within ten
// minutes.
func (d *Demo) Await(text string) string {
	d.t.Helper()
	late := time.After(10 * time.Minute)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				d.t.Fatalf("the demo has ended without %q:\n%s", text, strings.Join(d.said, "\n"))
			}
			d.said = append(d.said, line)
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			d.t.Fatal(fmt.Sprintf("the demo does not say %q:\n", text) + strings.Join(d.said, "\n"))
		}
	}
}
