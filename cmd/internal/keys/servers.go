package keys

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/doctor"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlpreflight"
)

// Server is what one server of the store reports about itself.
type Server struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// StartedMS is null if it is not known.
	StartedMS *int64 `json:"started_ms_ago"`
	// Evicted counts evicted keys since the start. Promoted says that the server took over from
	// another master.
	Evicted  int64 `json:"evicted_keys"`
	Promoted bool  `json:"promoted"`
	// Replica says that the server is a replica.
	Replica bool `json:"replica"`
	// More holds further counters of the database.
	More map[string]int64 `json:"more,omitempty"`
}

// String is a line for people.
func (s *Server) String() string {
	text := strings.TrimSpace(s.Name + " " + s.Version)
	if s.StartedMS != nil {
		text += ", started " + short(*s.StartedMS) + " ago"
	}
	if s.Replica {
		text += ", A REPLICA"
	}
	for _, name := range []string{"deadlocks", "rollbacks", "deleted rows"} {
		if n, there := s.More[name]; there {
			text += fmt.Sprintf(", %d %s", n, name)
		}
	}
	return text
}

// askServers asks the servers of the store. If they refuse to answer, it notes that in NotKnown and
// returns no error, so the record is still shown.
func (s *store) askServers(ctx context.Context, o *Options, e *Explanation) {
	var found []preflight.Finding
	var err, failed error
	if s.Redis != nil {
		if e.Servers, err = redisServers(ctx, s.Redis); err == nil {
			found, err = redisadapter.Preflight(ctx, s.Redis)
		}
	} else {
		e.Servers = make([]Server, 1)
		e.Servers[0], err = sqlServer(ctx, s, o)
		found, failed = sqlpreflight.Run(ctx, s.db, sqlpreflight.Config{
			Dialect: o.Server.Dialect(), Schema: o.Schema})
	}
	e.Findings = doctor.Grave(found)
	if err = cmp.Or(err, failed); err != nil {
		e.NotKnown = append(e.NotKnown, "all of the servers: "+o.Server.Hide(err.Error()))
	}
}

// redisServers asks each master.
func redisServers(ctx context.Context, client redis.UniversalClient) (all []Server, err error) {
	all = []Server{}
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		info := client.InfoMap(ctx)
		return append(all, redisServer("redis", info)), info.Err()
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		info := c.InfoMap(ctx)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, redisServer("redis "+c.Options().Addr, info))
		return info.Err()
	})
	return all, err
}

// redisServer reads the answer to INFO.
func redisServer(name string, info *redis.InfoCmd) Server {
	s := Server{Name: name, Version: info.Item("Server", "redis_version"),
		Replica: info.Item("Replication", "role") == "slave"}
	if up, err := strconv.ParseInt(info.Item("Server", "uptime_in_seconds"), 10, 64); err == nil {
		s.StartedMS = new(up * int64(time.Second/time.Millisecond))
	}
	s.Evicted, _ = strconv.ParseInt(info.Item("Stats", "evicted_keys"), 10, 64)
	// A second replication id belongs to the master that this server followed before it was
	// promoted.
	s.Promoted = strings.Trim(info.Item("Replication", "master_replid2"), "0") != ""
	return s
}

// facts are statements that return one number each. The first is the age of the process in
// milliseconds, the second is 1 for a replica.
var facts = map[sqladapter.Dialect][][2]string{
	sqladapter.Postgres: {
		{"started", `SELECT (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::bigint`},
		{"replica", `SELECT pg_is_in_recovery()::int`},
		{"deadlocks", `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`},
		{"rollbacks", `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`},
		{"deleted rows", `SELECT coalesce(sum(n_tup_del), 0)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'onceward%'`},
		{"timeline", `SELECT timeline_id FROM pg_control_checkpoint()`},
	},
	sqladapter.MySQL: {
		{"started", `SELECT VARIABLE_VALUE * 1000 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'`},
		{"replica", `SELECT @@global.read_only`},
	},
}

// sqlServer asks a database about itself.
func sqlServer(ctx context.Context, s *store, o *Options) (server Server, err error) {
	server = Server{Name: s.Name, More: map[string]int64{}}
	for _, fact := range facts[o.Server.Dialect()] {
		var n float64
		if failed := s.db.QueryRowContext(ctx, fact[1]).Scan(&n); failed != nil {
			err = fmt.Errorf("%s: %w", fact[0], failed)
			continue
		}
		switch value := int64(n); fact[0] {
		case "started":
			server.StartedMS = &value
		case "replica":
			server.Replica = value == 1
		case "timeline":
			server.Promoted = value > 1
		default:
			server.More[fact[0]] = value
		}
	}
	return server, err
}
