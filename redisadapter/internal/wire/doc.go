// Package wire is the ground floor of redisadapter, which everything above uses: the record as
// Redis holds it, the estimate of a server's clock, the answer to INFO, and the classes of errors.
package wire
