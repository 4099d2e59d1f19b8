package report
import "github.com/onceward/onceward/bench/internal/harness"
func Write(harness.Results, string) error { return nil }
