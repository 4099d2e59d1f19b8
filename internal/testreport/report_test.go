package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// events as `go test -json` prints them.
const (
	passed = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2.5}
{"Action":"pass","Package":"p","Elapsed":2.6}
`
	failedTest = `{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":0.1}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.200s of its own\n"}
{"Action":"fail","Package":"p","Elapsed":0.2}
`
	skippedTest = `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:1: NOT RUN: no server\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":0.1}
`
	// A panic or a timeout: the package fails, and its test never ends.
	cutShort = `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p","Elapsed":9}
`
	buildFailed = `{"ImportPath":"p","Action":"build-output","Output":"x.go:1:1: undefined: y\n"}
{"ImportPath":"p","Action":"build-fail"}
`
	noTests = `{"Action":"skip","Package":"q","Elapsed":0}
`
)

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, in string
		noSkip   bool
		ok       bool
		want     []string
		never    string
	}{
		{"passed", passed, true, true,
			[]string{"ok  \tp\t2.600s", "2.5s  TestA", "1 passed, 0 failed, 0 skipped"}, "quiet"},
		{"failed", failedTest, false, false,
			[]string{"b_test.go:1: wrong", "FAIL\tp", "0 passed, 1 failed"}, "of its own"},
		{"skip allowed", passed + skippedTest, false,
			true, []string{"skipped: p TestC: c_test.go:1: NOT RUN: no server"}, ""},
		{"skip forbidden", passed + skippedTest, true,
			false, []string{"skipped: p TestC", "counts as a failure"}, ""},
		{"cut short", cutShort, false, false, []string{"panic: test timed out", "FAIL\tp"}, ""},
		{"did not build", passed + buildFailed, false, false, []string{"undefined: y"}, ""},
		{"plain text", passed + "go: updates to go.mod needed\n", false, true,
			[]string{"go: updates to go.mod needed"}, ""},
		{"nothing ran", noTests, false, false,
			[]string{"?   \tq\t[no test files]", "no test ran"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			require.NoError(t, r.read(strings.NewReader(c.in)))
			assert.Equal(t, c.ok, r.close(c.noSkip), "ok")
			for _, want := range c.want {
				assert.Contains(t, out.String(), want, "the report lacks")
			}
			assert.False(t, c.never != "" && strings.Contains(out.String(), c.never),
				"the report has %q:\n%s", c.never, out.String())
		})
	}
}

// Often only the end of a long log is at hand, so the failures are repeated there. A test that
// failed only because of its subtests does not, and a long text is cut to its beginning.
func TestFailuresAreRepeatedAtTheEnd(t *testing.T) {
	said := func(test, output string) string {
		return fmt.Sprintf(`{"Action":"output","Package":"p","Test":%q,"Output":%q}`+"\n",
			test, output)
	}
	ended := func(action, test string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"p","Test":%q,"Elapsed":2}`+"\n", action, test)
	}
	in := said("TestE/sub", "    e_test.go:1: 1 is not 2\n")
	for i := range 20 {
		in += said("TestE/sub", fmt.Sprintf("more of it: %d\n", i))
	}
	in += ended("fail", "TestE/sub") + said("TestE", "--- FAIL: TestE (2.00s)\n") +
		ended("fail", "TestE") + passed
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(in+strings.ReplaceAll(cutShort, `"p"`,
		`"q"`))))
	r.close(false)
	_, end, found := strings.Cut(out.String(), "slowest tests:")
	_, end, again := strings.Cut(end, "failed tests:\n")
	require.True(t, found, "nothing is repeated:\n%s", out.String())
	require.True(t, again, "nothing is repeated:\n%s", out.String())
	for _, want := range []string{
		"  TestE/sub  p\n        e_test.go:1: 1 is not 2\n    more of it: 0\n",
		"    more of it: 13\n    ... and 6 lines more, above\n",
		"  TestD  q\n    panic: test timed out\n",
	} {
		assert.Contains(t, end, want, "the end lacks")
	}
	for _, never := range []string{"TestE  p", "(the package)"} {
		assert.NotContains(t, end, never, "the end")
	}
}
