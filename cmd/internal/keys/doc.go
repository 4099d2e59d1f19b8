// Package keys shows operators what a store knows of keys, and settles those that nobody else can:
// the commands inspect, explain, inflight, uncertain, resolve and forget.
//
// All of them open what is there, and make nothing: a prefix or a table that nobody has used is an
// error. A store keeps a digest of a key, so lists name the ID of a key, which --id takes instead
// of a key.
package keys
