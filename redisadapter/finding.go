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
	// Fatal will lose claims or records, or cannot work at all.
	Fatal
)

// String returns the lower-case name.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Fatal:
		return "fatal"
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
	// refused: New refuses it with Options.Strict. impossible: New refuses it always.
	refused, impossible bool
	why, fix            string
}

var advices = map[Code]advice{
	CodeVersion: {Fatal, true, true, "the scripts need flags that came with Redis 7.0", "run Redis 7.0 or Valkey 7.2, or newer"},
	CodeRole:    {Fatal, true, true, "a replica takes no claims, and what it knows is late", "connect to the master, or through Sentinel"},
	CodeLoading: {Fatal, true, false, "nothing is answered until it has loaded", "wait"},
	CodeEvictionPolicy: {Fatal, true, false, "claims and records all carry an expiry, so a full server forgets them and effects run twice",
		"set maxmemory-policy noeviction"},
	CodeEvicted: {Warning, true, false, "if they were ours, effects have run, or will run, twice",
		"set maxmemory-policy noeviction and give it more memory"},
	CodeNoMaxMemory: {Note, false, false, "the system kills a process that takes all memory", "set maxmemory below what the machine has"},
	CodeMemory: {Warning, false, false, "at maxmemory new claims are refused (what runs can still be recorded)",
		"give it more memory, or shorten the window"},
	CodeNoPersistence: {Warning, true, false, "a restart forgets all, or all since the last snapshot",
		"set appendonly yes; choose appendfsync by what may be lost"},
	CodeRestartWipes: {Fatal, true, false, "a master that restarts empty makes its replicas empty, whatever they had acknowledged",
		"set appendonly yes on the master and its replicas, or forbid its automatic restart"},
	CodeAppendFailed: {Warning, true, false, "what is written now does not survive a restart", "make room on its disk, or repair it"},
	CodeReplicaLink:  {Warning, false, false, "a failover to it forgets what it has not got", "look at the replica and at the link"},
	CodePlaintext: {Warning, true, false, "whoever is on the way reads the password and can change claims",
		"set TLSConfig, or use a tunnel on loopback"},
	CodeClusterReload: {Warning, false, false, "a client that waits for a master that hangs asks it until the next reload, long after its replica was promoted",
		"set ClusterOptions.ClusterStateReloadInterval to one or two seconds"},
	CodeReplicaReads: {Fatal, true, false, "a replica says absent of what was done just before, and the effect runs twice",
		"leave ReadOnly, RouteByLatency and RouteRandomly unset in this client"},
	CodeNoCanary: {Warning, false, false, "the amnesia guard does not notice when this master alone loses its data",
		"give every master at least 512 slots in a row"},
	CodeAmnesia: {Fatal, false, false, "messages that are redelivered may run a second time",
		"restore the data if you can; otherwise wait until Options.AmnesiaFor is over, or call redisadapter.Acknowledge"},
	CodeSuspect: {Warning, false, false, "replication is asynchronous: what was acknowledged just before may be lost",
		"nothing, if a failover or restart was expected"},
	CodeRecovered:   {Note, false, false, "claims are granted again", "nothing"},
	CodeFlagged:     {Warning, false, false, "their effects may be repetitions", "compare them with the downstream"},
	CodeClock:       {Warning, false, false, "leases end too early or too late by as much", "let the server's clock be slewed, not stepped"},
	CodeUnreachable: {Warning, false, false, "what happens there is not noticed", "look at the server and at the network"},
}

func finding(code Code, server, format string, args ...any) Finding {
	a := advices[code]
	return Finding{Code: code, Severity: a.severity, Server: server, Detail: fmt.Sprintf(format, args...), Why: a.why, Fix: a.fix}
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
// others. In a Cluster's first seconds after a failover the client's list of masters is
// out of date: a replica among them is no mistake of the caller.
func refuse(findings []Finding, opts Options, client redis.UniversalClient) error {
	_, cluster := client.(*redis.ClusterClient)
	var refused []Finding
	for _, f := range findings {
		a := advices[f.Code]
		if a.impossible && (!cluster || f.Code != CodeRole) || opts.Strict && a.refused {
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
