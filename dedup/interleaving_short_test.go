//go:build !long

package dedup_test

// troubles is how many may come together in one schedule.
const troubles = 1
