// Package redistest gives tests a Redis: miniredis for speed and for fake time, and every kind of
// real server for what only real servers do.
//
// miniredis has no eviction, no maxmemory, no Cluster, no failover and no flags of scripts. A test
// that depends on those needs a real server.
package redistest
