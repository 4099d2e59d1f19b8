// Package demo shows on this machine what Onceward promises. It produces a stream with duplicates
// and consumes it with worker processes. It kills them with SIGKILL at the two points that matter,
// forces rebalances, and counts in an append-only ledger how often every effect happened.
//
// The parent process is the broker (kfake), Redis (miniredis) and the supervisor, and keeps the
// counts. Package worker is the child process.
package demo
