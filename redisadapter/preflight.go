package redisadapter

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/advice"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// maxReload is the longest ClusterStateReloadInterval without a finding.
	maxReload = 2 * time.Second
	// nearLimit is the share of maxmemory, in percent, from which memory is short.
	nearLimit = 90
	// maxLag is how many seconds ago a replica's last report may be; it reports every second.
	maxLag = 10
)

// Preflight looks at the client's settings and at the server, or at every master of a Cluster, and
// returns what may lose claims or records: worst first, empty when all is well. It needs nothing
// but INFO (so an ACL user without CONFIG will do), says so where that is refused, and writes
// nothing. An embedded server for tests, which does not say what it is, has no findings.
//
// The error says that a server could not be asked; the findings are then about the other servers.
// It makes one round trip per server, to all at the same time, and a new connection to a server
// that Sentinels name.
func Preflight(ctx context.Context, client redis.UniversalClient) ([]preflight.Finding, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	if problem := redisscript.ClientProblem(client); problem != "" {
		return nil, input("Client", problem)
	}
	var mu sync.Mutex
	findings := checkClient(client)
	_, err := wire.EachServer(ctx, client,
		func(ctx context.Context, addr string, node redis.UniversalClient) error {
			fields, err := wire.ServerInfo(ctx, node, addr)
			if err != nil {
				return err
			}
			found := checkServer(ctx, addr, node, fields)
			mu.Lock()
			defer mu.Unlock()
			findings = append(findings, found...)
			return nil
		})
	mu.Lock() // go-redis waits for all its visits, but the race detector wants to know
	defer mu.Unlock()
	advice.Sort(findings)
	return findings, err
}

// checkClient looks at the settings of the client.
func checkClient(client redis.UniversalClient) []preflight.Finding {
	r := advice.Report{Table: wire.Advices}
	if !redisscript.KeepsDeadlines(client) {
		r.Add(wire.CodeContextTimeout, "ContextTimeoutEnabled is false")
	}
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return r.Findings
	}
	opts := cluster.Options()
	if opts.ReadOnly || opts.RouteByLatency || opts.RouteRandomly {
		r.Add(wire.CodeReplicaReads, "ReadOnly is %t, RouteByLatency %t, RouteRandomly %t",
			opts.ReadOnly, opts.RouteByLatency, opts.RouteRandomly)
	}
	if opts.ClusterStateReloadInterval > maxReload {
		r.Add(wire.CodeClusterReload, "ClusterStateReloadInterval is %v",
			opts.ClusterStateReloadInterval)
	}
	return r.Findings
}

// checkServer looks at one server, and at the way to it.
func checkServer(ctx context.Context, addr string, node redis.UniversalClient,
	i wire.Info) []preflight.Finding {
	if i.Embedded() {
		return nil
	}
	r := &advice.Report{Table: wire.Advices, Server: destination(ctx, addr, node)}
	checkLearned(r, i)
	checkKind(r, i)
	checkMemory(r, i)
	checkPersistence(r, i)
	checkReplicas(r, i)
	if c, ok := node.(*redis.Client); ok && c.Options().TLSConfig == nil &&
		c.Options().Network != "unix" && remote(r.Server) {
		r.Add(wire.CodePlaintext, "the connection is not encrypted")
	}
	return r.Findings
}

// byName is the address that go-redis shows for a client that asks Sentinels for the real one.
const byName = "FailoverClient"

// destination returns where connections lead. A client that asks Sentinels does not know the
// address, so destination asks its dialer for a connection. That costs one more connection to the
// Sentinels and one to the server, and needs no rights.
func destination(ctx context.Context, addr string, node redis.UniversalClient) string {
	c, ok := node.(*redis.Client)
	if !ok || addr != byName {
		return addr
	}
	conn, err := c.Options().Dialer(ctx, c.Options().Network, addr)
	if err != nil {
		return addr // not known, and taken for another machine
	}
	defer func() { _ = conn.Close() }()
	return conn.RemoteAddr().String()
}

// remote reports whether an address leads to another machine, as far as can be told. A name other
// than "localhost" counts as another machine.
func remote(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" || host == "localhost" {
		return err != nil
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// checkLearned looks at what the server does not say of itself.
func checkLearned(r *advice.Report, i wire.Info) {
	if why, refused := i[wire.InfoError]; refused {
		r.Add(wire.CodeNotLearned, "INFO is refused: %s", why)
		return
	}
	if names := i.Missing(); len(names) > 0 {
		r.Add(wire.CodeNotLearned, "INFO does not say %s",
			strings.Join(names, ", "))
	}
}

// checkKind looks at version, role and readiness.
func checkKind(r *advice.Report, i wire.Info) {
	if problem := versionProblem(i); problem != "" {
		r.Add(wire.CodeVersion, "%s", problem)
	}
	if role := i["role"]; role == "slave" || role == "replica" {
		r.Add(wire.CodeRole, "its role is %s, its master %s:%s, the link %s",
			role, i["master_host"], i["master_port"], i["master_link_status"])
	}
	if i["loading"] == "1" || i["async_loading"] == "1" {
		r.Add(wire.CodeLoading, "it is reading its data set")
	}
}

// versionProblem says what is wrong with the version. It says nothing of a server that does not
// tell its version: the script that New tries decides. Valkey reports the version of Redis that it
// is compatible with (7.2.4), and its own.
func versionProblem(i wire.Info) string {
	if version := i["valkey_version"]; i["server_name"] == "valkey" && !atLeast(version, 7, 2) {
		return fmt.Sprintf("has Valkey version %q; 7.2 or newer is needed", version)
	}
	if version := i["redis_version"]; version != "" && !atLeast(version, 7, 0) {
		return fmt.Sprintf("has version %q; 7.0 or newer is needed", version)
	}
	return ""
}

// comparesInSet reports whether a server knows SET IFEQ.
func comparesInSet(i wire.Info) bool {
	if i["server_name"] == "valkey" {
		return atLeast(i["valkey_version"], 8, 1)
	}
	return atLeast(i["redis_version"], 8, 4)
}

// atLeast compares the first two numbers of a version. A text that is not a version is older.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	b, err := strconv.Atoi(second)
	return a > major || a == major && err == nil && b >= minor
}

// checkMemory looks at what happens, or has happened, when memory is full.
func checkMemory(r *advice.Report, i wire.Info) {
	limit, known := i.Count("maxmemory")
	if policy := i["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		switch {
		case known && limit > 0:
			r.Add(wire.CodeEvictionPolicy, "maxmemory-policy is %s, maxmemory %d bytes", policy, limit)
		case known:
			r.Add(wire.CodeEvictionUnlimited, "maxmemory-policy is %s, and maxmemory 0", policy)
		}
	}
	if n, _ := i.Count("evicted_keys"); n > 0 {
		r.Add(wire.CodeEvicted, "%d keys have been evicted since it was started", n)
	}
	switch used, _ := i.Count("used_memory"); {
	case known && limit == 0:
		r.Add(wire.CodeNoMaxMemory, "maxmemory is 0")
	case known && used > limit/100*nearLimit:
		r.Add(wire.CodeMemory, "%d of %d bytes are used", used, limit)
	}
}

// checkPersistence looks at what survives a restart. INFO does not say whether snapshots are
// configured; a snapshot would bring back the state of minutes ago.
func checkPersistence(r *advice.Report, i wire.Info) {
	replicas, _ := i.Count("connected_slaves")
	switch {
	case i["aof_enabled"] == "0" && replicas > 0:
		r.Add(wire.CodeRestartWipes, "appendonly is no, and %d replicas follow", replicas)
	case i["aof_enabled"] == "0":
		r.Add(wire.CodeNoPersistence, "appendonly is no")
	}
	if status := i["aof_last_write_status"]; i["aof_enabled"] == "1" && status != "" &&
		status != "ok" {
		r.Add(wire.CodeAppendFailed, "the last write to the append-only file was %q", status)
	}
}

// checkReplicas looks at the replicas that a master knows, in lines such as
// "slave0:ip=10.0.0.1,port=6379,state=online,offset=1,lag=0".
func checkReplicas(r *advice.Report, i wire.Info) {
	count, _ := i.Count("connected_slaves")
	for n := range min(count, 64) {
		line := i[fmt.Sprintf("slave%d", n)]
		if line == "" {
			continue
		}
		link := make(map[string]string)
		for field := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(field, "=")
			link[name] = value
		}
		lag, err := strconv.Atoi(link["lag"])
		if link["state"] != "online" || err != nil || lag > maxLag {
			r.Add(wire.CodeReplicaLink, "replica %s:%s is %s, last heard of %s s ago",
				link["ip"], link["port"], link["state"], link["lag"])
		}
	}
}

// RefusedError is the error of [New] for servers and settings that it does not accept.
type RefusedError struct {
	// Findings because of which New refuses; at least one.
	Findings []preflight.Finding
}

// Error implements error.
func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "redisadapter: refused: " + strings.Join(lines, "\n")
}

// New refuses a server because of a finding with one of these codes: always, or with
// Options.Strict. The rule for an eviction policy without Options.Strict is in refuses.
var (
	alwaysRefused = map[string]bool{
		wire.CodeVersion: true, wire.CodeRole: true, wire.CodeReplicaReads: true,
	}
	strictlyRefused = map[string]bool{
		wire.CodeLoading: true, wire.CodeEvictionPolicy: true, wire.CodeEvicted: true,
		wire.CodeNoPersistence: true,
		wire.CodeRestartWipes:  true, wire.CodeAppendFailed: true, wire.CodePlaintext: true,
	}
)

// refuse returns an error for the findings that New does not accept, and hands on the others.
// counted reports whether all servers say how many keys they have evicted.
func refuse(findings []preflight.Finding, opts Options, client redis.UniversalClient,
	counted bool) error {
	_, cluster := client.(*redis.ClusterClient)
	var refused []preflight.Finding
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

// refuses reports whether New does not accept a finding. In the first seconds after a failover of
// a Cluster the client's list of masters is out of date: if a replica is on it, that is not the
// caller's mistake. A server that evicts is accepted with Options.AllowEviction, and behind a guard
// that closes when the server evicts.
func refuses(code string, opts Options, cluster, counted bool) bool {
	switch {
	case code == wire.CodeEvictionPolicy && opts.AllowEviction:
		return false
	case code == wire.CodeEvictionPolicy && !opts.Strict:
		return opts.Amnesia != FailClosed || !counted
	case code == wire.CodeRole && cluster:
		return opts.Strict
	}
	return alwaysRefused[code] || opts.Strict && strictlyRefused[code]
}

// logFinding is the default of Options.OnFinding.
func logFinding(f preflight.Finding) {
	level := slog.LevelWarn
	if f.Severity == preflight.Note {
		level = slog.LevelDebug
	}
	slog.LogAttrs(context.Background(), level, "redisadapter: "+f.Detail,
		slog.String("code", f.Code), slog.String("severity", f.Severity.String()),
		slog.String("server", f.Server), slog.String("why", f.Why), slog.String("fix", f.Fix))
}
