// Package wire is the lowest layer of redisadapter: the record as Redis holds it, the estimate of a
// server's clock, the answer to INFO, and the classes of errors.
package wire
