//go:build !long

package guarantees_test

// kinds of Deduper that are tested with every fault.
var kinds = []kind{full}
