//go:build !long

package lostreply_test

// enough is how many claims, and how many completions, must have lost a reply.
const enough = 300
