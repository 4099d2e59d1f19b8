// Package demo shows on this machine what Onceward promises: it produces a stream with
// duplicates, consumes it with worker processes, kills them with SIGKILL at the two
// points that matter, forces rebalances, and counts in an append-only ledger how often
// every effect happened.
//
// The parent process is broker (kfake), Redis (miniredis), supervisor and bookkeeper;
// flags replace the embedded servers by real ones. Package worker is the child.
package demo
