package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// completed has lines and the completions of their last word.
var completed = []struct{ line, want string }{
	{"onceward d", "demo doctor"},
	{"onceward comp", "completion"},
	{"onceward doctor --redis-p", "--redis-password-env"},
	{"onceward doctor --json --kafka-c", "--kafka-config"},
	{"onceward doctor --redis r", ""},
	{"onceward doctor --kafka-config so", "some.conf"},
	{"onceward migrate --kind f", "fence"},
	{"onceward inspect so", ""},
	{"onceward completion z", "zsh"},
}

// shell finds a shell. It makes a directory with the command itself and a file to complete.
func shell(t *testing.T, name string) (path, dir string) {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "some.conf"), nil, 0o600))
	wrapper := "#!/bin/sh\n" + asCommand + "=1 exec '" + exe + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "onceward"), []byte(wrapper), 0o700))
	return path, dir
}

// ask lets a shell complete all lines. Each is a function that prints one candidate a line.
func ask(t *testing.T, dir, path, before string, line func(words []string) string, args ...string) {
	t.Helper()
	text := before
	for _, c := range completed {
		text += "\necho; echo \"== " + c.line + "\"\n" + line(strings.Fields(c.line))
	}
	c := exec.CommandContext(t.Context(), path, append(args, text)...)
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	answers := strings.Split(string(out), "\n== ")
	require.Len(t, answers, len(completed)+1, "%s", out)
	for i, c := range completed {
		_, got, _ := strings.Cut(answers[i+1], "\n")
		var names []string
		for candidate := range strings.Lines(got) {
			name, _, _ := strings.Cut(strings.TrimSpace(candidate), "\t")
			name, _, _ = strings.Cut(name, ":")
			names = append(names, strings.Fields(name)...)
		}
		slices.Sort(names)
		assert.Equal(t, c.want, strings.Join(names, " "), "%s: %s", path, c.line)
	}
}

func script(t *testing.T, shell string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run([]string{"completion", shell}, &cli.Streams{Out: &out, Err: &errOut})
	require.Equal(t, cli.Done, code, errOut.String())
	return out.String()
}

// bashWords replaces a function of the package bash-completion, which cobra's scripts need.
const bashWords = `
_get_comp_words_by_ref() {
  cword=$COMP_CWORD; words=("${COMP_WORDS[@]}"); cur=${words[cword]}; prev=${words[cword-1]}
}
type() { [[ $2 == compopt ]] && echo builtin || builtin type "$@"; }
compopt() { case $* in *'+o default'*) files= ;; esac; }
`

func TestBash(t *testing.T) {
	path, dir := shell(t, "bash")
	ask(t, dir, path, script(t, "bash")+bashWords, func(words []string) string {
		return "COMP_WORDS=(" + strings.Join(words, " ") + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); " +
			"COMP_LINE='" + strings.Join(words, " ") + "'; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; " +
			"COMPREPLY=(); files=1; __start_onceward; printf '%s\\n' \"${COMPREPLY[@]}\"; " +
			"if [[ $files && ! ${COMPREPLY[*]} ]]; then compgen -f -- '" + words[len(words)-1] + "'; fi"
	}, "--norc", "-c")
}

func TestFish(t *testing.T) {
	path, dir := shell(t, "fish")
	ask(t, dir, path, script(t, "fish"), func(words []string) string {
		return "complete -C '" + strings.Join(words, " ") + "'"
	}, "--no-config", "-c")
}

// zsh completes only on a terminal, so its functions print what they get.
const zshFunctions = `
compdef() { :; }
_describe() { local found=(${(M)completions:#$lastParam*}); print -rl -- $found; (($#found)); }
_arguments() { print -rl -- $lastParam*(N); }
`

func TestZsh(t *testing.T) {
	path, dir := shell(t, "zsh")
	ask(t, dir, path, zshFunctions+script(t, "zsh"), func(words []string) string {
		return "words=(" + strings.Join(words, " ") + "); CURRENT=$#words; _onceward; true"
	}, "-f", "-c")
}
