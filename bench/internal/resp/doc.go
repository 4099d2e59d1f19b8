// Package resp is the least that speaks the Redis protocol (RESP2): it writes commands into
// one buffer, sends them in one write and reads the replies one after another, without
// allocating. It is the yardstick of the benchmarks, the limit of what a client in Go can
// reach, and nothing more: no pool, no retry, no reconnect.
package resp
