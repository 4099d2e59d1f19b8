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
// # Keys in Redis
//
// One string per key, named "ow:{digest}": a digest of 16 bytes in base64url, in braces so that any
// key next to it shares its Cluster slot. The value is a small versioned binary record; see
// docs/internals/redisadapter.md. It always carries an expiry, written in the same command. A key
// whose value this version cannot read (foreign, of another type, truncated, of a newer version,
// without an expiry) answers Unknown with [driver.ErrUnreadable], and the value is never
// overwritten.
//
// One key named "ow:forgets" holds a number, once a key was forgotten or a cache of finished keys
// was used: see [Store.Forgets]. Once [Init] was called, there are also canaries named
// "ow:canary:{number}", without an expiry: one on a single server, 64 spread over the slots of a
// Cluster. Never delete them.
//
// # Layouts
//
// Options.Layout decides what a store keeps of a finished key, and that decides its memory. The
// figures are used_memory of 64-bit Redis 7.0, for finished keys; a key in flight has a record in
// every layout.
//
//	Options.Layout  keeps of a finished key                  bytes a key   completes with
//	Full            result or failure, fingerprint, origin   180 and more  a script for many keys;
//	                                                                       SET GET without results
//	Compact         that it has succeeded; a failure         9; 180        SADD, then DEL; a script
//
// A Deduper with SeenOnly keeps no results. Compact needs SeenOnly, and refuses fingerprints. For
// each key that has succeeded it puts 8 bytes of a keyed digest into a set of integers (a "bucket")
// named "ow:{shard}:{generation}". The lease of a key, or the record of its failure, is named
// "ow:{shard}:digest", so it is in the same slot. A generation is as long as Options.Window and
// counted from 1970 by the server's clock. This has consequences:
//
//   - A key is remembered for at least the Window from when its completion was called,
//     and for at most two Windows and four seconds: as long as its generation and the
//     next one last. So memory holds up to two Windows of keys, of 9 bytes each.
//   - Attempt, fence, age, origin and label of a key that has succeeded are not kept: a Duplicate
//     has Attempt 1, and its Remaining lasts until the generation is dropped. A completion by a
//     script (a fence that was read, a Mark, a late owner) leaves a record for half a minute: when
//     it is sent again, it finds that record. A completion on the hot path leaves none. When it is
//     sent again before its lease has ended, it assumes that this owner has done the key. That is
//     wrong only if a newer generation has taken the key over (TakeOverOlderGeneration) and
//     completed it. After the lease it answers that the key is done, and not that this owner has
//     done it.
//   - A key that was never seen is taken for done with odds of n/2^64, where n counts the members
//     of its shard alone: 2.5e-17 with 235 in each of two generations.
//   - Secret, Window and ExpectedKeys must be the same in all processes: they decide where
//     a key is found. With more than twice as many keys as ExpectedKeys a
//     bucket outgrows set-max-intset-entries (512) and takes eight times the memory. It
//     stays correct.
//   - For each bucket (235 keys) of the previous generation that a process often asks, the process
//     keeps up to 272 bytes. It then need not ask that bucket for most new keys. This takes 18 MB
//     at most. Beyond 15 million ExpectedKeys a process keeps nothing.
//   - The clocks of masters, and of a replica that is promoted, may differ by two seconds (a
//     quarter of the Window, if that is less). When a clock goes back over the edge of a generation
//     by more than that, the keys that were recorded after the edge are not found, and run again if
//     they are redelivered meanwhile. Keys that are recorded meanwhile are found again once the
//     clock is right, by a process that has read the clock in between, or has not read it for 10
//     seconds. A process uses a reading for up to 5 seconds, and may miss a step meanwhile.
//   - When the reply of a completion was lost, and the client sends it again at the very moment of
//     a Forget of the key, the completion may undo the Forget.
//
// # Cost
//
// Each call of a [Store] method is one pipeline, on a Cluster one per node in parallel, of plain
// commands and Lua scripts. Items that only a script can decide take a second pipeline. All times
// are by the server's clock.
//
// So the server's clock must be slewed and not stepped. A step ahead ends leases whose owners are
// at work, so that effects of their keys may happen twice. It also forgets records that had less
// than the step left to live. After a step back, a key whose owner died stays in flight for longer,
// by as much as the step. [Store.Watch] reports steps (clock_jump).
//
// # When Redis loses data, or is away
//
// [Preflight] names what will lose claims or records (eviction, no persistence, reads from a
// replica, ...). New refuses a server that may evict keys, unless Options.Amnesia is FailClosed or
// Options.AllowEviction is set, and a client that reads from replicas. New hands the other findings
// to Options.OnFinding, and refuses more of them with Options.Strict. [Store.Watch] continues to
// look while the process runs. Nothing that it finds ends a process.
//
// With Options.Amnesia the store notices when the server has lost what it had: FLUSHALL,
// a restart without persistence, a wrong server. Call [Init] once per deployment:
//
//	opts := redisadapter.Options{Amnesia: redisadapter.FailClosed, AmnesiaFor: window}
//	// Once, by hand or in the step that deploys for the first time:
//	// err := redisadapter.Init(ctx, client, opts)
//	store, err := redisadapter.New(ctx, client, opts)
//	...
//	go store.Watch(ctx, 0) // for alarms: losses while nothing is claimed, and what will lose data
//
// The pipeline of a batch of claims also reads, after the claims, the canary of every server that
// they go to. When it is missing or has changed, the store gives back the claims of that batch, and
// for the window grants nothing that might be a repetition: see [Amnesia]. The loss, with the
// server's time, is written into the canary, so that all processes agree until the window is over
// or an operator calls [ClearAmnesia]. A failover or a restart that keeps the canary closes the
// store for Options.SuspectFor. That does not bring back the keys that replication had not yet
// copied: no canary can detect their loss.
//
// Limits: a loss counts for the whole deployment, even when only one master of a Cluster has lost
// its data. A claim that is redirected, because its slot is being moved, is executed after the
// canary was read.
//
// Evictions spare the canary, so the guard also compares how many keys the server has
// evicted. New starts no goroutine for that: batches of claims ask, with one INFO. On a server that
// may evict, each batch that has won claims asks before they are granted, so no key that was
// evicted is granted again; that takes one more round trip. On other servers one batch every 400 ms
// asks, because somebody may change the policy. The count is kept in a key named "ow:evictions", so
// that New finds what was evicted while no process was running. Measured on a server of 16 MB, with
// allkeys-lru, volatile-ttl and allkeys-random, 120,000 keys and no Watch: 0 of 84,000 acknowledged
// keys were granted again; with AllowEviction and no guard, 106,906 of 120,000.
//
// At most Options.MaxInFlight pipelines are under way. After Options.BreakerAfter calls in a row
// without a reply, calls fail at once with [ErrBreakerOpen], for a jittered time that grows to half
// a second; then one call tries. Completions and renewals belong to effects that have begun, so
// even then they are sent, two at a time. A reply that refuses a command, and a caller that gives
// up, are not counted. One breaker serves all masters of a Cluster, and a reply from any of them
// closes it.
//
// # Setting Redis up
//
//   - maxmemory-policy must be noeviction: any other forgets claims and records at will, and
//     New refuses it. When memory is full, new claims answer [driver.ErrStoreFull], while renewing,
//     completing and releasing still work.
//   - Persistence (appendonly yes) or replicas decide what survives a crash; replication is
//     asynchronous, so a failover may forget what was acknowledged just before. appendfsync
//     everysec may forget too, and not only when the machine dies. While its log is being synced,
//     Redis keeps writes that it has answered in its own memory for up to two seconds
//     (flushAppendOnlyFile), and a SIGKILL of the process loses them. appendfsync always writes
//     them to the log before it answers.
//   - On a Cluster set ClusterOptions.ClusterStateReloadInterval to one or two seconds, and
//     ReadTimeout and DialTimeout to one. With go-redis's default interval of a minute, a master
//     that hangs is asked for a minute after its replica has been promoted. With its default
//     timeouts of five seconds, a reload that happens to ask the hanging node first holds up all
//     others for as long (measured: 11 s until every key was served again, instead of 5 s).
//   - Set ReadTimeout and DialTimeout to one second for a single server, too. When a server that
//     hung wakes up, a dial that has waited for some seconds waits for as many more, because the
//     kernel sends its next SYN only then.
//   - Leave the client's retries on. Every item may be sent again: a claim whose reply
//     was lost finds its own token, and a completion finds its own record.
//   - While a server is down, go-redis dials again until the call's time is up and then
//     says "context deadline exceeded"; the refused dial is only in go-redis's log
//     (redis.SetLogger). With DialerRetries 1 in its options, the call returns that error.
//
// # A user of few rights
//
// This line of users.acl suffices:
//
//	user onceward on >change-me resetkeys ~ow:* resetchannels -@all
//	+eval +evalsha +get +mget +set +pttl +time +info +ping
//	+hget +hset +hdel +hlen +hscan +hrandfield +exists
//	+sadd +sismember +srandmember +srem +pexpireat +getdel +del +cluster|slots +asking
//
// Change the password, and "ow" if Options.Prefix is another. The commands from hget on are for
// attempts with a point of no return, those from sadd on for Compact, and the last two for a
// Cluster. Attempts with a point of no return also need +pexpireat. A client with a name also needs
// +client|setname. With +spublish +ssubscribe and &ow:*, Config.Wait of a Deduper also wakes
// waiters of other processes; without these rights the waiters poll. [Store.List] also needs +scan
// +getrange (on a Cluster +cluster|myid), and [Store.Atomic] +watch +unwatch +multi +exec and the
// commands of its effects.
//
// # Changing settings on live data
//
// The window of the layout Full, leases, holds and limits are not stored: change them any time, and
// new records follow. The settings that decide where a key is found, or what is kept of it, are
// fixed for a prefix: the layout, and for Compact the secret, the window and the number of expected
// keys. (That number may change as long as the number of shards stays the same: [Options.Shards].)
// New compares them with those in "ow:layout" and refuses others with [ErrOtherLayout], which names
// both. When "ow:layout" is gone, with all other data (FLUSHALL) or evicted, the next New writes
// its own settings; running processes do not look at it again. Delete it by hand only with all keys
// of the prefix. To change a setting, move to another prefix (or another server) with Moving of
// package dedup/layered, by rolling deployments:
//
//  1. all processes have old;
//  2. all get Moving(old, next);
//  3. when all have that, all get Moving(next, old);
//  4. one window after the last process of step 1 has ended, all get next.
//
// Processes of neighboring steps exclude each other: no effect runs twice and none is lost, even
// when a process dies in the middle. Processes of steps that are not neighbors do not know of each
// other: finish each rollout, and go back by the same steps. A process of step 1 that still runs
// next to one of step 3 runs effects twice.
//
// Another namespace, another scope, or another source for the key changes the ID itself, so no
// store can know both IDs. Nest two Dedupers of the two namespaces instead. The inner one records
// first, so the steps are the same. First all processes run the effect in [dedup.Do] of old. Then
// [dedup.Do] of next calls [dedup.Do] of old, which runs the effect. Then old calls next, and one
// window later next runs the effect alone. See the example of a namespace.
package redisadapter
