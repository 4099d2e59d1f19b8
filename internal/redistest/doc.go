// Package redistest gives tests a Redis: miniredis for speed and for fake time, and every
// kind of server that is there for the truth.
//
// miniredis shows neither eviction, nor maxmemory, nor Cluster, nor failover, nor the
// flags of scripts. What depends on those needs a real server.
package redistest
