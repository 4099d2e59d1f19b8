// Package plan estimates what a deployment will need: memory of Redis for each layout, size and
// odds of Bloom filters, rows and bytes of SQL tables, and the odds that a new key is taken for
// done.
//
// For Redis it computes what Redis allocates for a key; see memory.go. A test compares that with
// real servers. For Bloom filters it calls Options.Plan of package bloom. For SQL it uses
// measurements (bench/results/sql.json) and the form of the rows.
//
// The plan counts finished keys. The spare covers everything else: claims in flight (a record for
// each message in work), the memory of clients and replication, and the pages that are copied while
// a fork writes a snapshot or the append-only file.
package plan
