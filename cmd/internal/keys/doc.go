// Package keys shows operators what a store knows about keys, and settles those that no program can
// settle: the commands inspect, explain, inflight, uncertain, resolve and forget.
//
// All of them open existing stores and create nothing: a prefix or a table that nobody has used is
// an error. A store keeps only a digest of a key. Lists therefore show IDs, and --id takes an ID
// instead of a key.
package keys
