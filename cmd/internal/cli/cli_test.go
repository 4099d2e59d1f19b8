package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// values are the flags of the command that these tests run.
type values struct {
	redis, sql, namespace, prefix, kind string
	window                              time.Duration
	share                               float64
	err                                 error
}

func (v *values) command() *Command {
	return &Command{
		Use: "look [KEY]", MaxArgs: 1, Short: "Look",
		Exits: map[int]string{No: "there is none"},
		Flags: func(f *Flags) {
			f.StringVar(&v.redis, "redis", "", "`URL`")
			f.StringVar(&v.sql, "sql", "", "`DSN`")
			f.StringVar(&v.prefix, "prefix", "ow", "`prefix`")
			f.StringVar(&v.namespace, "namespace", "", "`name`")
			f.ChoiceVar(&v.kind, "kind", "", "`kind`", "marks", "fence")
			f.DurationVar(&v.window, "window", 0, "window")
			f.ShareVar(&v.share, "dup", 0, "`share`")
			f.Setting("redis", "sql", "prefix", "namespace", "window")
			f.Instead("redis", "sql")
			f.Instead("sql", "redis", "prefix")
			f.Require("namespace")
		},
		Run:  func(context.Context, *Streams) error { return v.err },
		Hide: func(text string) string { return strings.ReplaceAll(text, "hunter22", "***") },
	}
}

// look runs the command with an environment and a file of settings.
func look(t *testing.T, env map[string]string, file, args string) (v values, code int,
	says string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "onceward"), 0o700))
	path := filepath.Join(dir, "onceward", "config")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	var out, errOut bytes.Buffer
	s := &Streams{Out: &out, Err: &errOut, Env: func(name string) (string, bool) {
		if name == "XDG_CONFIG_HOME" {
			return dir, true
		}
		value, ok := env[name]
		return value, ok
	}}
	code = Run(t.Context(), s, v.command(), strings.Fields(args)...)
	return v, code, strings.ReplaceAll(out.String()+errOut.String(), path, "FILE")
}

// The command line overrides the environment, and the environment overrides the file.
func TestSettings(t *testing.T) {
	env := map[string]string{"ONCEWARD_NAMESPACE": "env", "ONCEWARD_WINDOW": "2d"}
	file := "# mine\nnamespace = file\n\nprefix=file\nwindow = 1h\nredis = redis://file\n"
	v, code, says := look(t, env, file, "--namespace line")
	require.Equal(t, Done, code, says)
	assert.Equal(t, values{namespace: "line", prefix: "file", window: 48 * time.Hour,
		redis: "redis://file"}, v)
	v, code, says = look(t, env, file, "")
	require.Equal(t, Done, code, says)
	assert.Equal(t, "env", v.namespace)
	_, code, says = look(t, nil, "", "")
	assert.Equal(t, Usage, code)
	assert.Equal(t, "onceward look: --namespace is missing\n", says)
}

// A store on the command line replaces another kind of store in the settings.
func TestSettingsOfAnotherStore(t *testing.T) {
	env := map[string]string{"ONCEWARD_REDIS": "redis://env", "ONCEWARD_NAMESPACE": "n"}
	v, code, says := look(t, env, "prefix = file", "--sql sqlite:x")
	require.Equal(t, Done, code, says)
	assert.Equal(t, values{namespace: "n", prefix: "ow", sql: "sqlite:x"}, v)
	v, code, says = look(t, env, "sql = sqlite:x", "")
	require.Equal(t, Done, code, says)
	assert.Equal(t, values{namespace: "n", prefix: "ow", redis: "redis://env"}, v)
}

// An error says where its value came from.
func TestSettingsOrigin(t *testing.T) {
	env := map[string]string{"ONCEWARD_WINDOW": "soon"}
	_, code, says := look(t, env, "namespace = n", "")
	assert.Equal(t, Usage, code)
	assert.Contains(t, says, "a duration is written as 30s, 10m, 36h or 7d")
	assert.Contains(t, says, "\n--window is from the environment, ONCEWARD_WINDOW")
	for file, want := range map[string]string{
		"namespace = n\nwindow = soon": "--window is from FILE:2",
		"namespac = n":                 "FILE:1 is not name = value; the names are namespace, prefix, redis",
		"namespace":                    "FILE:1 is not name = value",
		"kind = marks":                 "FILE:1 is not name = value",
	} {
		_, code, says = look(t, nil, file, "")
		assert.Equal(t, Usage, code, file)
		assert.Contains(t, says, want, file)
	}
	_, _, says = look(t, nil, "namespace = n", "--window soon")
	assert.NotContains(t, says, "is from")
	_, code, says = look(t, map[string]string{"ONCEWARD_CONFIG": "/not/there"}, "", "")
	assert.Equal(t, Usage, code)
	assert.Contains(t, says, "the file of settings: open /not/there")
}

func TestValues(t *testing.T) {
	for args, want := range map[string]values{
		"--window 7d":       {window: 7 * 24 * time.Hour},
		"--window 1.5d":     {window: 36 * time.Hour},
		"--window 1d12h30m": {window: 36*time.Hour + 30*time.Minute},
		"--window 90s":      {window: 90 * time.Second},
		"--dup 5%":          {share: 0.05},
		"--dup 0.5":         {share: 0.5},
		"--kind fence":      {kind: "fence"},
	} {
		v, code, says := look(t, nil, "", "--namespace n "+args)
		require.Equal(t, Done, code, says)
		want.namespace, want.prefix = "n", "ow"
		assert.Equal(t, want, v, args)
	}
	for args, want := range map[string]string{
		"--window d": "a duration is written", "--window 7": "a duration is written",
		"--window 7d3": "a duration is written", "--dup x": "a share is written",
		"--kind x": "it is one of marks, fence", "a b": `unexpected argument "b"`,
	} {
		_, code, says := look(t, nil, "", "--namespace n "+args)
		assert.Equal(t, Usage, code, args)
		assert.Contains(t, says, want, args)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", time.Minute: "1m", 90 * time.Minute: "1h30m",
		10 * time.Hour: "10h", 24 * time.Hour: "1d", 36 * time.Hour: "36h", 240 * time.Hour: "10d",
	} {
		assert.Equal(t, want, Span(d))
	}
}

func TestExitCodes(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		code int
		says string
	}{
		"well":            {t.Context(), nil, Done, ""},
		"refused":         {t.Context(), errors.New("no hunter22"), Usage, "onceward look: no ***\n"},
		"no":              {t.Context(), Fail(No, errors.New("none")), No, "onceward look: none\n"},
		"said already":    {t.Context(), Fail(Critical, nil), Critical, ""},
		"interrupted":     {interrupted, errors.New("cut"), Interrupted, "onceward look: interrupted\n"},
		"interrupted, no": {interrupted, Fail(No, errors.New("x")), Interrupted, "onceward look: interrupted\n"},
		"says what is left": {interrupted, Fail(Interrupted, errors.New("left")), Interrupted,
			"onceward look: left\n"},
		"said, and then interrupted": {interrupted, Fail(No, nil), No, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := values{err: test.err}
			var errOut bytes.Buffer
			s := &Streams{Out: &errOut, Err: &errOut}
			assert.Equal(t, test.code, Run(test.ctx, s, v.command(), "--namespace", "n"))
			assert.Equal(t, test.says, errOut.String())
		})
	}
}

// The help contains what the command says of itself, within the width of the terminal.
func TestHelp(t *testing.T) {
	for _, width := range []int{60, 80} {
		var v values
		c := v.command()
		c.Long = strings.Repeat("It looks at a key. ", 20)
		var out bytes.Buffer
		require.Equal(t, Done, Run(t.Context(), &Streams{Out: &out, Err: &out, Width: width}, c,
			"-h"))
		for _, want := range []string{"onceward look [KEY] [flags]", "--redis URL",
			"[$ONCEWARD_REDIS]", "Exit codes:", "  1    there is none", "  130  interrupted"} {
			assert.Contains(t, out.String(), want)
		}
		for line := range strings.Lines(out.String()) {
			assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), width, line)
		}
	}
}

func TestAudit(t *testing.T) {
	t.Setenv("SUDO_USER", "ada")
	var out bytes.Buffer
	Audit(&out, "resolve", "id", "12", "was", "uncertain", "is", "succeeded")
	assert.Regexp(t, `^time=\S+ level=INFO msg=audit who="?ada\S* .*change=resolve id=12 `+
		`was=uncertain is=succeeded\n$`, out.String())
}
