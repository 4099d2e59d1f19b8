package completion

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onceward/onceward/cmd/internal/flags"
)

// some are commands with each kind of flag, and texts that a shell could stumble over.
func some() []Command {
	help := func(set func(f *flag.FlagSet)) func(io.Writer) {
		return func(out io.Writer) {
			f := flag.NewFlagSet("", flag.ContinueOnError)
			set(f)
			_ = flags.Parse(f, []string{"-h"}, "usage", out)
		}
	}
	return []Command{
		{Name: "doctor", Text: "what's lost: here", Help: help(func(f *flag.FlagSet) {
			f.String("redis", "", "`URL` of a [server]: \\ $(touch ran) `touch ran`")
			f.String("redis-user", "", "it's a name")
			f.String("config", "", "`file` to read")
			f.Bool("json", false, "write JSON")
		})},
		{Name: "demo", Text: "shows", Help: help(func(*flag.FlagSet) {})},
		{Name: "completion", Text: "this", Help: help(func(*flag.FlagSet) {}), Operands: Shells},
	}
}

func script(t *testing.T, shell string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := Main([]string{shell}, some(), &out, &errOut); code != ExitDone {
		t.Fatalf("exit code %d, %s", code, errOut.String())
	}
	return out.String()
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]int{"-h": ExitDone, "bash": ExitDone, "": ExitUsage,
		"tcsh": ExitUsage, "bash zsh": ExitUsage} {
		var out, errOut bytes.Buffer
		if code := Main(strings.Fields(args), some(), &out, &errOut); code != want ||
			(code == ExitDone) != (errOut.Len() == 0) || (code == ExitDone) != (out.Len() > 0) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out.String(), errOut.String())
		}
	}
}

// What a line of words is completed to, the last word being the one that is completed.
var lines = map[string]string{
	"onceward d":                  "demo doctor",
	"onceward comp":               "completion",
	"onceward doctor -re":         "-redis -redis-user",
	"onceward doctor --re":        "--redis --redis-user",
	"onceward doctor -json -c":    "-config",
	"onceward doctor -redis r":    "",
	"onceward doctor --redis d":   "",
	"onceward doctor -config so":  "some.conf",
	"onceward doctor --config so": "some.conf",
	"onceward doctor -config = s": "some.conf",
	"onceward completion z":       "zsh",
	"onceward completion -z":      "",
	"onceward nosuch -":           "",
}

// shell finds one, and a directory with a file to complete.
func shell(t *testing.T, name string) (path, dir string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("NOT RUN: there is no %s", name)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "some.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

// ask runs a shell; nothing that stands in a text of ours may have been run by it.
func ask(t *testing.T, dir, path string, args ...string) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), path, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Errorf("%s has run a text", path)
	}
	answers := strings.Fields(string(out))
	slices.Sort(answers)
	return answers
}

func TestBash(t *testing.T) {
	path, dir := shell(t, "bash")
	for line, want := range lines {
		text := script(t, "bash") + "\nCOMP_WORDS=(" + line +
			"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _onceward; printf '%s\\n' \"${COMPREPLY[@]}\""
		if got := ask(t, dir, path, "--norc", "-c", text); strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
	if got := ask(t, dir, path, "--norc",
		"-c", script(t, "bash")+"\ncomplete -p onceward"); !slices.Contains(got, "_onceward") {
		t.Errorf("%v", got)
	}
}

func TestFish(t *testing.T) {
	path, dir := shell(t, "fish")
	for line, want := range lines {
		if strings.Contains(line, "--") || strings.Contains(line, "=") {
			continue // flags have one dash for fish
		}
		got := ask(t, dir, path, "--no-config", "-c",
			script(t, "fish")+"\ncomplete -C "+quote(line)+" | string split -f1 \\t; true")
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
}

// zsh completes on a terminal alone: what is asked for is that it takes the script, and that
// _arguments gets each flag.
func TestZsh(t *testing.T) {
	path, dir := shell(t, "zsh")
	text := `autoload -Uz compinit; compinit -u -d ./dump; ` + script(t, "zsh") + `
		_arguments() { print -rl -- "$@" }
		words=(onceward doctor -); CURRENT=3; _onceward`
	got := strings.Join(ask(t, dir, path, "-f", "-c", text), " ")
	for _, want := range []string{`*-redis[URL`, `*-redis-user[it's`, "*-config[file",
		"]:file:_files", "-json[write"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}
