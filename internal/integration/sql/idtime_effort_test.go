//go:build !long

package sql_test

// How many messages the tests of ids that carry their time have; under the tag long it is more.
const (
	idTimeMessages = 1_500 // of each client
	changeMessages = 500
)
