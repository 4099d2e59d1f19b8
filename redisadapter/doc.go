// Package redisadapter keeps the claims and records of package dedup in Redis 7.0 or
// newer (or Valkey 7.2 or newer), through a go-redis client for one server, Sentinel, or
// Cluster:
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
//	store, err := redisadapter.New(ctx, client, redisadapter.Options{})
//	if err != nil {
//		return err
//	}
//	d, err := dedup.New(store, dedup.Config{Namespace: "payments", ...})
//	if err != nil {
//		return err
//	}
//
// # What is kept
//
// One string per key, named "ow:{digest}": a digest of 16 bytes in base64url, in braces
// so that whatever is ever kept beside it shares its Cluster slot. The value is a small
// versioned binary record; see DESIGN.md. It always carries an expiry, written in the
// same command. A value that this version cannot read (foreign, of another type,
// truncated, of a newer version, without an expiry) answers Unknown with
// [dedup.ErrUnreadable] and is never overwritten.
//
// Besides, there is one key named "ow:forgets" with a number, once something was
// forgotten or a cache of finished keys was used: see [Store.Forgets].
//
// # What it costs
//
// Each call of a [Store] method is one pipeline, on a Cluster one per node in parallel,
// with one Lua script per item. All time is the server's.
//
// # Setting Redis up
//
//   - maxmemory-policy must be noeviction: any other forgets claims and records at will.
//     When memory is full, new claims answer [dedup.ErrStoreFull], while renewing,
//     completing and releasing still work.
//   - Persistence (appendonly yes) or replicas decide what survives a crash; replication
//     is asynchronous, so a failover may forget what was acknowledged just before.
//   - On a Cluster set ClusterOptions.ClusterStateReloadInterval to one or two seconds,
//     and ReadTimeout and DialTimeout to one. With go-redis's default interval of a
//     minute, a master that hangs is asked for a minute after its replica has been
//     promoted. With its default timeouts of five seconds, a reload that happens to ask
//     the hanging node first holds up all others for as long (measured: 11 s until every
//     key was served again, in place of 5 s).
//   - Leave the client's retries on. Every item may be sent again: a claim whose reply
//     was lost finds its own token, and a completion finds its own record.
//   - While a server is down, go-redis dials again until the call's time is up and then
//     says "context deadline exceeded"; the refused dial is in go-redis's log alone
//     (redis.SetLogger). Options.DialerRetries 1 makes it the error of the call.
//   - An ACL user needs: ~ow:* +eval +evalsha +get +set +pttl +time +info +ping, and what
//     its client says when it connects (+hello +client|setname +client|setinfo, on a
//     Cluster also +cluster|slots +cluster|shards +command).
package redisadapter
