package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Info is what INFO says of one server: its fields by name.
type Info map[string]string

// ParseInfo reads the answer to INFO.
func ParseInfo(text string) Info {
	fields := make(Info)
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if found && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}

// Count returns a number; false when the server does not say it.
func (i Info) Count(name string) (uint64, bool) {
	n, err := strconv.ParseUint(i[name], 10, 64)
	return n, err == nil
}

// Clock returns the server's time; false when the server does not say it.
func (i Info) Clock() (time.Time, bool) {
	us, err := strconv.ParseInt(i["server_time_usec"], 10, 64)
	return time.UnixMicro(us), err == nil
}

// Embedded reports whether the server is one for tests, which does not say who it is.
func (i Info) Embedded() bool { return i == nil }

// AskInfo asks one server for all it says by default, in one round trip. It returns nil
// for an embedded server.
func AskInfo(ctx context.Context, client redis.UniversalClient) (Info, error) {
	text, err := client.Info(ctx).Result()
	fields := ParseInfo(text)
	if err == nil && fields["redis_version"] == "" {
		err = client.Info(ctx, "server").Err()
	}
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.Contains(err.Error(), "not supported") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return fields, nil
}

// ServerInfo is AskInfo for a server that may refuse INFO: the result then has only the field
// InfoError.
func ServerInfo(ctx context.Context, client redis.UniversalClient, addr string) (Info, error) {
	fields, err := AskInfo(ctx, client)
	if infoRefused(err) {
		return Info{InfoError: err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("redisadapter: INFO of Redis at %s: %w", addr, err)
	}
	return fields, nil
}

// InfoError is the field that says why INFO was refused.
const InfoError = "error"

// infoRefused reports whether a server answers but refuses INFO: the user may not run it, or the
// service does not have it.
func infoRefused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || redis.HasErrorPrefix(err, "NOAUTH") ||
		redis.HasErrorPrefix(err, "WRONGPASS") {
		return false
	}
	class := Classify(err)
	return class == ClassDenied || class == ClassOther
}

// Missing lists the fields that the server lacks, of those that say whether it can be used, and
// whether it may forget.
func (i Info) Missing() (names []string) {
	for _, name := range []string{"redis_version", "maxmemory_policy", "maxmemory"} {
		if i[name] == "" && (name != "maxmemory" || i["maxmemory_policy"] != "noeviction") {
			names = append(names, name)
		}
	}
	return names
}

// EachServer calls visit for the server, or for all masters of a Cluster at the same time. It
// returns how many were visited, and the first error.
func EachServer(ctx context.Context, client redis.UniversalClient,
	visit func(ctx context.Context, addr string, node redis.UniversalClient) error) (int, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return 1, visit(ctx, Address(client), client)
	}
	var mu sync.Mutex
	visited := 0
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		visited++
		mu.Unlock()
		return visit(ctx, node.Options().Addr, node)
	})
	return visited, err
}

// Keys returns how many keys the client's database has. It reads INFO instead of DBSIZE, to which
// users.acl gives no right. The line is db0:keys=3,expires=1,...
func (i Info) Keys(client redis.UniversalClient) int64 {
	of, ok := client.(interface{ Options() *redis.Options })
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(i[fmt.Sprint("db", of.Options().DB)], "keys="),
		",")
	n, _ := strconv.ParseInt(text, 10, 64)
	return n // 0 where the server does not say it
}

// Address is what the client was told to connect to.
func Address(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return "the given client"
}
