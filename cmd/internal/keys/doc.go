// Package keys shows operators what a store knows of keys, and settles those that nobody else can:
// the commands inspect, inflight, uncertain, resolve and forget.
//
// All of them open what is there, and make nothing: a prefix or a table that nobody has used is an
// error. A store keeps a digest of a key, so what is listed is named by its ID, which --id takes in
// the place of a key.
package keys
