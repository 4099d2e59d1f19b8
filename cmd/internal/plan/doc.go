// Package plan reckons what a deployment will need: memory of Redis for each layout, size and odds
// of Bloom filters, rows and bytes of SQL tables, and the odds of taking a new key for done.
//
// Redis is reckoned from what it allocates for a key, see memory.go; a test fills real servers and
// compares. Bloom filters are those of package bloom's own Options.Plan. SQL rests on what was
// measured (bench/results/sql.json), and on the form of the rows.
//
// The plan counts finished keys. The spare is for everything else. That is claims in flight (a
// record for each message that is worked on), the memory of clients and replication, and the pages
// that a fork for a snapshot or a rewrite of the append-only file copies.
package plan
