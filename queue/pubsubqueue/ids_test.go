//go:build !long

package pubsubqueue_test

// ids is how many ids a row of the suite has, and atOnce how many rows run at once: most of them
// wait for deadlines. The tests with the tag long have as many ids as the suite asks of a broker.
const ids, atOnce = 100, "8"
