package redisadapter

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

// info is what INFO says of one server: its fields by name.
type info map[string]string

func parseInfo(text string) info {
	fields := make(info)
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if found && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}

// count returns a number; false when the server does not say it.
func (i info) count(name string) (uint64, bool) {
	n, err := strconv.ParseUint(i[name], 10, 64)
	return n, err == nil
}

// clock returns the server's time; false when the server does not say it.
func (i info) clock() (time.Time, bool) {
	us, err := strconv.ParseInt(i["server_time_usec"], 10, 64)
	return time.UnixMicro(us), err == nil
}

// embedded: a server for tests that knows INFO, but not who it is.
func (i info) embedded() bool { return i == nil }

// askInfo asks one server for all it says by default, in one round trip. It returns nil
// for an embedded server.
func askInfo(ctx context.Context, client redis.UniversalClient) (info, error) {
	text, err := client.Info(ctx).Result()
	fields := parseInfo(text)
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

// serverInfo is askInfo of a server that may refuse INFO: it then has the field infoError alone.
func serverInfo(ctx context.Context, client redis.UniversalClient, addr string) (info, error) {
	fields, err := askInfo(ctx, client)
	if infoRefused(err) {
		return info{infoError: err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("redisadapter: INFO of Redis at %s: %w", addr, err)
	}
	return fields, nil
}

// infoError is the field of an info that was refused: why.
const infoError = "error"

// infoRefused reports whether a server answers, and not to INFO: the user may not run it,
// or the service does not have it.
func infoRefused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || redis.HasErrorPrefix(err, "NOAUTH") ||
		redis.HasErrorPrefix(err, "WRONGPASS") {
		return false
	}
	class := Classify(err)
	return class == classDenied || class == classOther
}

// missing lists the fields that the server does not have, of those by which it says whether
// it can be used and may forget.
func (i info) missing() (names []string) {
	for _, name := range []string{"redis_version", "maxmemory_policy", "maxmemory"} {
		if i[name] == "" && (name != "maxmemory" || i["maxmemory_policy"] != "noeviction") {
			names = append(names, name)
		}
	}
	return names
}

// eachServer calls visit for the server, or for every master of a Cluster, at the same
// time. It returns how many were visited, and the first error.
func eachServer(ctx context.Context, client redis.UniversalClient,
	visit func(ctx context.Context, addr string, node redis.UniversalClient) error) (int, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return 1, visit(ctx, address(client), client)
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
