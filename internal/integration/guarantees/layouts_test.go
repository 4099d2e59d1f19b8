//go:build !long

package guarantees_test

// kinds of Deduper whose lives are taken through every fault.
var kinds = []kind{full}
