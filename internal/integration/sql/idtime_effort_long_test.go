//go:build long

package sql_test

const (
	idTimeMessages = 15_000
	changeMessages = 2_500
)
