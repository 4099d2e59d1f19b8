//go:build long

package sqsqueue_test

const ids = 1000

var suites = map[string]string{"standard": "", "fifo": ".fifo"}
