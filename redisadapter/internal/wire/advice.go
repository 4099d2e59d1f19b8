package wire

import (
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/advice"
)

// The codes of what [Preflight] finds. docs/reference/findings.md says what each means. Metrics and
// alarms read them, so a code does not change.
const (
	CodeVersion           = "version"
	CodeRole              = "replica_role"
	CodeLoading           = "loading"
	CodeEvictionPolicy    = "eviction_policy"
	CodeEvictionUnlimited = "eviction_policy_unlimited"
	CodeNotLearned        = "not_learned"
	CodeEvicted           = "evicted_keys"
	CodeNoMaxMemory       = "no_maxmemory"
	CodeMemory            = "memory_near_limit"
	CodeNoPersistence     = "no_persistence"
	CodeRestartWipes      = "no_persistence_with_replicas"
	CodeAppendFailed      = "append_failed"
	CodeReplicaLink       = "replica_link"
	CodePlaintext         = "plaintext"
	CodeClusterReload     = "cluster_reload_interval"
	CodeReplicaReads      = "replica_reads"
	CodeContextTimeout    = "context_timeout"
)

// The codes of what only [Store.Watch] and the amnesia guard find.
const (
	CodeNoCanary    = "canary_not_everywhere"
	CodeAmnesia     = "amnesia"
	CodeSuspect     = "suspect"
	CodeRecovered   = "recovered"
	CodeFlagged     = "flagged_claims"
	CodeClock       = "clock_jump"
	CodeFullBuckets = "full_buckets"
	CodeUnreachable = "unreachable"
)

// noEviction says how to set the policy, even where CONFIG SET is not allowed.
const noEviction = "set maxmemory-policy noeviction, in redis.conf and with CONFIG SET. " +
	"Or guard against evictions with Options.Amnesia FailClosed. " +
	"Or accept them with Options.AllowEviction. " +
	"Amazon ElastiCache and MemoryDB: in a parameter group of your own, " +
	"which ElastiCache Serverless does not have. " +
	"Google Memorystore: gcloud redis instances update " +
	"--update-redis-config maxmemory-policy=noeviction. " +
	"Azure Cache for Redis: Advanced settings. Azure Managed Redis: eviction policy NoEviction. " +
	"Redis Cloud: Data eviction policy, No eviction. " +
	"Upstash: disable Eviction. Heroku: heroku redis:maxmemory --policy noeviction"

// Advices are the findings of this adapter.
var Advices = advice.Table{
	CodeVersion: {Severity: preflight.Critical,
		Why: "the scripts need flags that came with Redis 7.0",
		Fix: "run Redis 7.0 or Valkey 7.2, or newer"},
	CodeRole: {Severity: preflight.Critical,
		Why: "a replica takes no claims, and what it knows is late",
		Fix: "connect to the master, or through Sentinel"},
	CodeLoading: {Severity: preflight.Critical,
		Why: "nothing is answered until it has loaded",
		Fix: "wait"},
	CodeEvictionPolicy: {Severity: preflight.Critical,
		Why: "claims and records all carry an expiry, so a full server forgets them and effects " +
			"run twice",
		Fix: noEviction},
	CodeEvictionUnlimited: {Severity: preflight.Warning,
		Why: "once maxmemory is set, a full server forgets claims and records and effects run " +
			"twice",
		Fix: noEviction},
	CodeNotLearned: {Severity: preflight.Warning,
		Why: "whether the server may forget claims and records is not known",
		Fix: "let this user run INFO, or ask the operator of the server for maxmemory-policy " +
			"noeviction"},
	CodeEvicted: {Severity: preflight.Warning,
		Why: "if they were ours, effects have run, or will run, twice",
		Fix: "set maxmemory-policy noeviction and give it more memory"},
	CodeNoMaxMemory: {Severity: preflight.Note,
		Why: "the system kills a process that takes all memory",
		Fix: "set maxmemory below what the machine has"},
	CodeMemory: {Severity: preflight.Warning,
		Why: "at maxmemory new claims are refused (what runs can still be recorded)",
		Fix: "give it more memory, or shorten the window"},
	CodeNoPersistence: {Severity: preflight.Warning,
		Why: "a restart forgets all, or all since the last snapshot",
		Fix: "set appendonly yes; choose appendfsync by what may be lost"},
	CodeRestartWipes: {Severity: preflight.Critical,
		Why: "a master that restarts empty makes its replicas empty, whatever they had " +
			"acknowledged",
		Fix: "set appendonly yes on the master and its replicas, or forbid its automatic restart"},
	CodeAppendFailed: {Severity: preflight.Warning,
		Why: "what is written now does not survive a restart",
		Fix: "make room on its disk, or repair it"},
	CodeReplicaLink: {Severity: preflight.Warning,
		Why: "a failover to it forgets what it has not got",
		Fix: "look at the replica and at the link"},
	CodePlaintext: {Severity: preflight.Warning,
		Why: "everybody on the way can read the password and change claims",
		Fix: "set TLSConfig, or use a tunnel on loopback"},
	CodeClusterReload: {Severity: preflight.Warning,
		Why: "a client that waits for a master that hangs asks it until the next reload, long " +
			"after its replica was promoted",
		Fix: "set ClusterOptions.ClusterStateReloadInterval to one or two seconds"},
	CodeReplicaReads: {Severity: preflight.Critical,
		Why: "a replica says absent of what was done just before, and the effect runs twice",
		Fix: "leave ReadOnly, RouteByLatency and RouteRandomly unset in this client; reads that " +
			"may be late need a client of their own"},
	CodeContextTimeout: {Severity: preflight.Note,
		Why: "each call waits for its reply in a goroutine of its own, and a lone caller on a busy " +
			"machine has a third of its rate",
		Fix: "set ContextTimeoutEnabled in the options of the client"},
	CodeNoCanary: {Severity: preflight.Warning,
		Why: "the amnesia guard does not notice when this master alone loses its data",
		Fix: "give every master at least 512 slots in a row"},
	CodeAmnesia: {Severity: preflight.Critical,
		Why: "messages that are redelivered may run a second time",
		Fix: "restore the data if you can; otherwise wait until Options.AmnesiaFor is over, or " +
			"call redisadapter.ClearAmnesia"},
	CodeSuspect: {Severity: preflight.Warning,
		Why: "replication is asynchronous, so the last writes may be lost that were acknowledged",
		Fix: "nothing, if a failover or restart was expected"},
	CodeRecovered: {Severity: preflight.Note,
		Why: "claims are granted again",
		Fix: "nothing"},
	CodeFlagged: {Severity: preflight.Warning,
		Why: "their effects may be repetitions",
		Fix: "compare them with the downstream"},
	CodeClock: {Severity: preflight.Warning,
		Why: "leases end too early or too late by as much",
		Fix: "let the server's clock be slewed, not stepped"},
	CodeFullBuckets: {Severity: preflight.Warning,
		Why: "beyond 512 members (set-max-intset-entries) a bucket takes eight times the memory",
		Fix: "raise set-max-intset-entries to 2048 (for the buckets of the next generation), " +
			"and move to another prefix with a larger ExpectedKeys (docs/reference/redis.md)"},
	CodeUnreachable: {Severity: preflight.Warning,
		Why: "what happens there is not noticed",
		Fix: "look at the server and at the network"},
}
