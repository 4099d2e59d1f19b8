// Package driver is the contract between package dedup and its stores: what a [Store] is asked,
// what it answers, and what it keeps.
//
// Most code should use package dedup, which has short names for what its own callers meet
// ([Store], [Record], [Resolution], [InputError], the outcomes of a claim). This package is for
// stores, wrappers of stores, and tools that read records. Package deduptest proves that a store
// keeps the contract, and that a wrapper hides nothing.
package driver
