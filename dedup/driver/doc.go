// Package driver is the contract between package dedup and its stores: what a [Store] is asked,
// what it answers, and what it keeps.
//
// Most code should use package dedup, which has short names for what its own callers meet
// ([Store], [Record], [Cause], [Origin], [Resolution], [InputError]). This package is for those
// who write a store or a wrapper of one, and for tools that read records. Package deduptest
// proves a store, and that a wrapper hides nothing.
package driver
