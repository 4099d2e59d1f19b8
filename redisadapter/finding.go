package redisadapter

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Severity says how bad a [Finding] is.
type Severity uint8

const (
	// Note is worth knowing and loses nothing.
	Note Severity = iota
	// Warning may lose records, or show them to others, when something else fails too.
	Warning
	// Critical loses claims or records as it is now, or cannot work at all. New refuses some
	// of these, and hands the others to Options.OnFinding; none ends a process that runs.
	Critical
)

// String returns the lower-case name.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// Code names the kind of a [Finding], for metrics and alarms.
type Code string

// What [Preflight] finds.
const (
	// CodeVersion: too old.
	CodeVersion Code = "version"
	// CodeRole: a replica, where a master is needed.
	CodeRole Code = "replica_role"
	// CodeLoading: reading its data set.
	CodeLoading Code = "loading"
	// CodeEvictionPolicy: any but noeviction.
	CodeEvictionPolicy Code = "eviction_policy"
	// CodeEvictionUnlimited: such a policy, and no maxmemory by which it would evict.
	CodeEvictionUnlimited Code = "eviction_policy_unlimited"
	// CodeNotLearned: INFO is refused, or does not say what matters.
	CodeNotLearned Code = "not_learned"
	// CodeEvicted: keys have been evicted.
	CodeEvicted Code = "evicted_keys"
	// CodeNoMaxMemory: memory is not bounded.
	CodeNoMaxMemory Code = "no_maxmemory"
	// CodeMemory: more than 90 % of maxmemory.
	CodeMemory Code = "memory_near_limit"
	// CodeNoPersistence: no append-only file.
	CodeNoPersistence Code = "no_persistence"
	// CodeRestartWipes: a restart empties the replicas too.
	CodeRestartWipes Code = "no_persistence_with_replicas"
	// CodeAppendFailed: the append-only file cannot be written.
	CodeAppendFailed Code = "append_failed"
	// CodeReplicaLink: a replica is not in step.
	CodeReplicaLink Code = "replica_link"
	// CodePlaintext: no TLS to another machine.
	CodePlaintext Code = "plaintext"
	// CodeClusterReload: the client finds a failover late.
	CodeClusterReload Code = "cluster_reload_interval"
	// CodeReplicaReads: the client reads from replicas.
	CodeReplicaReads Code = "replica_reads"
	// CodeNoCanary: a master that holds no canary.
	CodeNoCanary Code = "canary_not_everywhere"
)

// What [Store.Watch] and the amnesia guard find besides.
const (
	// CodeAmnesia: claims and records are lost.
	CodeAmnesia Code = "amnesia"
	// CodeSuspect: another server, or a restarted one, answers.
	CodeSuspect Code = "suspect"
	// CodeRecovered: the amnesia has been acknowledged, or its time is over.
	CodeRecovered Code = "recovered"
	// CodeFlagged: claims granted in spite of amnesia.
	CodeFlagged Code = "flagged_claims"
	// CodeClock: the server's clock has jumped.
	CodeClock Code = "clock_jump"
	// CodeFullBuckets: buckets of the layout Compact hold more keys than they are
	// made for.
	CodeFullBuckets Code = "full_buckets"
	// CodeUnreachable: the server does not answer the watcher.
	CodeUnreachable Code = "unreachable"
)

// Finding is one thing about a server, or about the client's settings, that an operator
// should know. The texts are English sentences without names of keys.
type Finding struct {
	Code     Code
	Severity Severity
	// Server is its address, as the client knows it; empty for a finding about the client.
	Server string
	// Detail is what was seen, Why what follows from it, and Fix what to do about it.
	Detail, Why, Fix string
}

// String is the finding on one line.
func (f Finding) String() string {
	where := ""
	if f.Server != "" {
		where = " at " + f.Server
	}
	return fmt.Sprintf("%s: %s%s: %s; %s; %s", f.Severity, f.Code, where, f.Detail, f.Why, f.Fix)
}

// advice is what does not depend on the server that was looked at.
type advice struct {
	severity Severity
	// refused: New refuses it with Options.Strict. impossible: New refuses it always. An
	// eviction policy is a case of its own.
	refused, impossible bool
	why, fix            string
}

// noEviction is how the policy is set, also where CONFIG SET is not allowed.
const noEviction = "set maxmemory-policy noeviction " +
	"(redis.conf and CONFIG SET; Amazon ElastiCache and MemoryDB: in a parameter group of your own, " +
	"which ElastiCache Serverless does not have; Google Memorystore: gcloud redis instances update --update-redis-config maxmemory-policy=noeviction; " +
	"Azure Cache for Redis: Advanced settings, Azure Managed Redis: eviction policy NoEviction; Redis Cloud: Data eviction policy, No eviction; " +
	"Upstash: disable Eviction; Heroku: heroku redis:maxmemory --policy noeviction), " +
	"or guard against it with Options.Amnesia FailClosed, or accept it with Options.AllowEviction"

var advices = map[Code]advice{
	CodeVersion: {Critical, true, true, "the scripts need flags that came with Redis 7.0",
		"run Redis 7.0 or Valkey 7.2, or newer"},
	CodeRole: {Critical, true, true,
		"a replica takes no claims, and what it knows is late",
		"connect to the master, or through Sentinel"},
	CodeLoading: {Critical, true, false, "nothing is answered until it has loaded",
		"wait"},
	CodeEvictionPolicy: {Critical, true, false,
		"claims and records all carry an expiry, so a full server forgets them and effects run twice", noEviction},
	CodeEvictionUnlimited: {Warning, false, false,
		"once maxmemory is set, a full server forgets claims and records and effects run twice",
		noEviction},
	CodeNotLearned: {Warning, false, false,
		"whether the server may forget claims and records is not known",
		"let this user run INFO, or ask the operator of the server for maxmemory-policy noeviction"},
	CodeEvicted: {Warning, true, false, "if they were ours, effects have run, or will run, twice",
		"set maxmemory-policy noeviction and give it more memory"},
	CodeNoMaxMemory: {Note, false, false, "the system kills a process that takes all memory",
		"set maxmemory below what the machine has"},
	CodeMemory: {Warning, false, false,
		"at maxmemory new claims are refused (what runs can still be recorded)",
		"give it more memory, or shorten the window"},
	CodeNoPersistence: {Warning, true, false,
		"a restart forgets all, or all since the last snapshot",
		"set appendonly yes; choose appendfsync by what may be lost"},
	CodeRestartWipes: {Critical, true, false,
		"a master that restarts empty makes its replicas empty, whatever they had acknowledged",
		"set appendonly yes on the master and its replicas, or forbid its automatic restart"},
	CodeAppendFailed: {Warning, true, false, "what is written now does not survive a restart",
		"make room on its disk, or repair it"},
	CodeReplicaLink: {Warning, false, false, "a failover to it forgets what it has not got",
		"look at the replica and at the link"},
	CodePlaintext: {Warning, true, false,
		"whoever is on the way reads the password and can change claims",
		"set TLSConfig, or use a tunnel on loopback"},
	CodeClusterReload: {Warning, false, false,
		"a client that waits for a master that hangs asks it until the next reload, long after its replica was promoted",
		"set ClusterOptions.ClusterStateReloadInterval to one or two seconds"},
	CodeReplicaReads: {Critical, true, true,
		"a replica says absent of what was done just before, and the effect runs twice",
		"leave ReadOnly, RouteByLatency and RouteRandomly unset in this client; reads that may be late need a client of their own"},
	CodeNoCanary: {Warning, false, false,
		"the amnesia guard does not notice when this master alone loses its data",
		"give every master at least 512 slots in a row"},
	CodeAmnesia: {Critical, false, false, "messages that are redelivered may run a second time",
		"restore the data if you can; otherwise wait until Options.AmnesiaFor is over, or call redisadapter.Acknowledge"},
	CodeSuspect: {Warning, false, false,
		"replication is asynchronous: what was acknowledged just before may be lost",
		"nothing, if a failover or restart was expected"},
	CodeRecovered: {Note, false, false, "claims are granted again", "nothing"},
	CodeFlagged: {Warning, false, false, "their effects may be repetitions",
		"compare them with the downstream"},
	CodeClock: {Warning, false, false, "leases end too early or too late by as much",
		"let the server's clock be slewed, not stepped"},
	CodeFullBuckets: {Warning, false, false,
		"beyond 512 members (set-max-intset-entries) a bucket takes eight times the memory",
		"raise set-max-intset-entries to 2048 (for the buckets of the next generation), and move to another prefix with a larger ExpectedKeys (docs/redis.md)"},
	CodeUnreachable: {Warning, false, false, "what happens there is not noticed",
		"look at the server and at the network"},
}

func finding(code Code, server, format string, args ...any) Finding {
	a := advices[code]
	return Finding{Code: code, Severity: a.severity, Server: server,
		Detail: fmt.Sprintf(format, args...), Why: a.why, Fix: a.fix}
}

// RefusedError is the error of [New] for servers and settings that it does not accept.
type RefusedError struct {
	// Findings that stand in the way; at least one.
	Findings []Finding
}

// Error implements error.
func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "redisadapter: refused: " + strings.Join(lines, "\n")
}

// refuse returns an error for the findings that New does not accept, and hands on the
// others. counted: all servers say how many keys they have evicted.
func refuse(findings []Finding, opts Options, client redis.UniversalClient, counted bool) error {
	_, cluster := client.(*redis.ClusterClient)
	var refused []Finding
	for _, f := range findings {
		if refuses(f.Code, opts, cluster, counted) {
			refused = append(refused, f)
		} else {
			opts.OnFinding(f)
		}
	}
	if len(refused) > 0 {
		return &RefusedError{refused}
	}
	return nil
}

// refuses reports whether New does not accept a finding. In a Cluster's first seconds after
// a failover the client's list of masters is out of date: a replica among them is no mistake
// of the caller. A server that evicts is accepted from a caller who says so, and behind a
// guard that closes when it does.
func refuses(code Code, opts Options, cluster, counted bool) bool {
	a := advices[code]
	switch {
	case code == CodeEvictionPolicy && opts.AllowEviction:
		return false
	case code == CodeEvictionPolicy && !opts.Strict:
		return opts.Amnesia != FailClosed || !counted
	case code == CodeRole && cluster:
		return opts.Strict
	}
	return a.impossible || opts.Strict && a.refused
}

// logFinding is what becomes of findings without Options.OnFinding.
func logFinding(f Finding) {
	level := slog.LevelWarn
	if f.Severity == Note {
		level = slog.LevelDebug
	}
	slog.LogAttrs(context.Background(), level, "redisadapter: "+f.Detail,
		slog.String("code", string(f.Code)), slog.String("severity", f.Severity.String()),
		slog.String("server", f.Server), slog.String("why", f.Why), slog.String("fix", f.Fix))
}
