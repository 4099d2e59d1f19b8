//go:build long

package pubsubqueue_test

// atOnce is less here: pstest takes a processor of its own for each row with a thousand ids.
const ids, atOnce = 1000, "2"
