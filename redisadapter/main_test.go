package redisadapter_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at a time than there are processors, if there are servers, because
// with a real clock the suite mostly waits for leases to end. It does not change an explicit
// -parallel.
func TestMain(m *testing.M) {
	flag.Parse()
	given := os.Getenv("ONCEWARD_SERVERS") == ""
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
