//go:build !long

package deduptest

// judges are the properties that a broken store is shown to: those that must notice it.
// The build tag long shows it to all, which tells who else notices.
func judges(red []string) []string { return red }
