package http_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at a time than there are processors: they wait for servers, and for
// keys and leases to end. An explicit -parallel stands.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
