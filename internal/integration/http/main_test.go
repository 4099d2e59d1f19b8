package http_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain runs a server process if the environment says so. Otherwise it lets more tests run at a
// time than there are processors: they wait for servers, and for keys and leases to end. An
// explicit -parallel is kept.
func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := work(text, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "server process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
