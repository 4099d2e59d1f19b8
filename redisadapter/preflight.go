package redisadapter

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
)

const (
	// maxReload is the longest ClusterStateReloadInterval without a finding.
	maxReload = 2 * time.Second
	// nearLimit is the share of maxmemory, in percent, from which memory is short.
	nearLimit = 90
	// maxLag is how many seconds ago a replica may have been heard of; it reports every
	// second.
	maxLag = 10
)

// Preflight looks at the client's settings and at the server, or at every master of a Cluster, and
// returns what may lose claims or records: worst first, empty when all is well. It needs nothing
// but INFO (so an ACL user without CONFIG will do), says so where that is refused, and writes
// nothing. An embedded server for tests, which does not say what it is, gives none.
//
// The error says that a server could not be asked; the findings are then those of the others. One
// round trip per server, at the same time, and a new connection to a server that Sentinels name.
func Preflight(ctx context.Context, client redis.UniversalClient) ([]Finding, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	if problem := redisscript.ClientProblem(client); problem != "" {
		return nil, input("Client", problem)
	}
	var mu sync.Mutex
	findings := checkClient(client)
	_, err := eachServer(ctx, client,
		func(ctx context.Context, addr string, node redis.UniversalClient) error {
			fields, err := askInfo(ctx, node)
			if infoRefused(err) {
				fields, err = info{infoError: err.Error()}, nil
			}
			if err != nil {
				return fmt.Errorf("redisadapter: INFO of Redis at %s: %w", addr, err)
			}
			found := checkServer(ctx, addr, node, fields)
			mu.Lock()
			defer mu.Unlock()
			findings = append(findings, found...)
			return nil
		})
	mu.Lock() // go-redis waits for all its visits, but the race detector wants to know
	defer mu.Unlock()
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Server, b.Server))
	})
	return findings, err
}

// checkClient looks at the settings of the client.
func checkClient(client redis.UniversalClient) []Finding {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var found []Finding
	opts := cluster.Options()
	if opts.ReadOnly || opts.RouteByLatency || opts.RouteRandomly {
		found = append(found, finding(CodeReplicaReads,
			"", "ReadOnly is %t, RouteByLatency %t, RouteRandomly %t",
			opts.ReadOnly, opts.RouteByLatency, opts.RouteRandomly))
	}
	if opts.ClusterStateReloadInterval > maxReload {
		found = append(found, finding(CodeClusterReload, "", "ClusterStateReloadInterval is %v",
			opts.ClusterStateReloadInterval))
	}
	return found
}

// checkServer looks at one server, and at the way to it.
func checkServer(ctx context.Context, addr string, node redis.UniversalClient, i info) []Finding {
	if i.embedded() {
		return nil
	}
	addr = destination(ctx, addr, node)
	var found []Finding
	for _, check := range []func(string, info) []Finding{checkLearned, checkKind, checkMemory,
		checkPersistence, checkReplicas} {
		found = append(found, check(addr, i)...)
	}
	if c, ok := node.(*redis.Client); ok && c.Options().TLSConfig == nil &&
		c.Options().Network != "unix" && remote(addr) {
		found = append(found, finding(CodePlaintext, addr, "the connection is not encrypted"))
	}
	return found
}

// byName is what go-redis calls the address of a client that asks Sentinels for one.
const byName = "FailoverClient"

// destination is where connections lead. A client that asks Sentinels has no address to tell, so
// its dialer is asked for a connection, which costs another one to the Sentinels and the server,
// and no rights.
func destination(ctx context.Context, addr string, node redis.UniversalClient) string {
	c, ok := node.(*redis.Client)
	if !ok || addr != byName {
		return addr
	}
	conn, err := c.Options().Dialer(ctx, c.Options().Network, addr)
	if err != nil {
		return addr // where it leads is not known, and taken for elsewhere
	}
	defer func() { _ = conn.Close() }()
	return conn.RemoteAddr().String()
}

// remote reports whether an address leads to another machine, as far as can be told. A
// name that is not "localhost" does.
func remote(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" || host == "localhost" {
		return err != nil
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// checkLearned looks at what the server does not say of itself.
func checkLearned(addr string, i info) (found []Finding) {
	if why, refused := i[infoError]; refused {
		return append(found, finding(CodeNotLearned, addr, "INFO is refused: %s", why))
	}
	if names := i.missing(); len(names) > 0 {
		found = append(found, finding(CodeNotLearned, addr, "INFO does not say %s",
			strings.Join(names, ", ")))
	}
	return found
}

// checkKind looks at version, role and readiness.
func checkKind(addr string, i info) (found []Finding) {
	if problem := versionProblem(i); problem != "" {
		found = append(found, finding(CodeVersion, addr, "%s", problem))
	}
	if role := i["role"]; role == "slave" || role == "replica" {
		found = append(found, finding(CodeRole, addr,
			"its role is %s, its master %s:%s, the link %s",
			role, i["master_host"], i["master_port"], i["master_link_status"]))
	}
	if i["loading"] == "1" || i["async_loading"] == "1" {
		found = append(found, finding(CodeLoading, addr, "it is reading its data set"))
	}
	return found
}

// versionProblem says what is wrong with the version, or nothing: about a server that does
// not say it, the script that New tries decides. Valkey reports the
// version of Redis that it is compatible with (7.2.4), and its own.
func versionProblem(i info) string {
	if version := i["valkey_version"]; i["server_name"] == "valkey" && !atLeast(version, 7, 2) {
		return fmt.Sprintf("has Valkey version %q; 7.2 or newer is needed", version)
	}
	if version := i["redis_version"]; version != "" && !atLeast(version, 7, 0) {
		return fmt.Sprintf("has version %q; 7.0 or newer is needed", version)
	}
	return ""
}

// atLeast compares the first two numbers of a version. What is no version is older.
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
func checkMemory(addr string, i info) (found []Finding) {
	limit, known := i.count("maxmemory")
	if policy := i["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		switch {
		case known && limit > 0:
			found = append(found, finding(CodeEvictionPolicy, addr,
				"maxmemory-policy is %s, maxmemory %d bytes", policy, limit))
		case known:
			found = append(found, finding(CodeEvictionUnlimited, addr,
				"maxmemory-policy is %s, and maxmemory 0", policy))
		}
	}
	if n, _ := i.count("evicted_keys"); n > 0 {
		found = append(found, finding(CodeEvicted, addr,
			"%d keys have been evicted since it was started", n))
	}
	switch used, _ := i.count("used_memory"); {
	case known && limit == 0:
		found = append(found, finding(CodeNoMaxMemory, addr, "maxmemory is 0"))
	case known && used > limit/100*nearLimit:
		found = append(found, finding(CodeMemory, addr, "%d of %d bytes are used", used, limit))
	}
	return found
}

// checkPersistence looks at what a restart leaves. INFO does not say whether snapshots
// are configured; they would leave the state of minutes ago.
func checkPersistence(addr string, i info) (found []Finding) {
	replicas, _ := i.count("connected_slaves")
	switch {
	case i["aof_enabled"] == "0" && replicas > 0:
		found = append(found, finding(CodeRestartWipes,
			addr, "appendonly is no, and %d replicas follow", replicas))
	case i["aof_enabled"] == "0":
		found = append(found, finding(CodeNoPersistence, addr, "appendonly is no"))
	}
	if status := i["aof_last_write_status"]; i["aof_enabled"] == "1" && status != "" &&
		status != "ok" {
		found = append(found, finding(CodeAppendFailed,
			addr, "the last write to the append-only file was %q", status))
	}
	return found
}

// checkReplicas looks at the replicas that a master knows, in lines such as
// "slave0:ip=10.0.0.1,port=6379,state=online,offset=1,lag=0".
func checkReplicas(addr string, i info) (found []Finding) {
	count, _ := i.count("connected_slaves")
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
			found = append(found, finding(CodeReplicaLink,
				addr, "replica %s:%s is %s, last heard of %s s ago",
				link["ip"], link["port"], link["state"], link["lag"]))
		}
	}
	return found
}
