// Package plan reckons what a deployment will need: memory of Redis for each layout, size and odds
// of Bloom filters, rows and bytes of SQL tables, and the odds of taking a new key for done.
//
// Redis is reckoned from what it allocates for a key, see memory.go; a test fills real servers and
// compares. Bloom filters are those of package bloom's own Options.Plan. SQL rests on what was
// measured (bench/results/sql.json), and on the form of the rows.
//
// What is counted are finished keys. Not counted are claims in flight (as many as messages are
// being worked on, a record each), what clients and replication need, and what a fork for a
// snapshot or a rewrite of the append-only file copies: the spare is for those.
package plan
