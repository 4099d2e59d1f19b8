//go:build !long

package sqsqueue_test

// ids is how many ids a row of the suite has. The tests with the tag long have as many as the suite
// asks of a broker.
const ids = 100

// suites are the kinds of queues that have the suite, with the end of their names. TestFIFO has the
// other one.
var suites = map[string]string{"standard": ""}
