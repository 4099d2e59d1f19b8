// Package servertest gives tests the real servers that `make test` starts.
//
// Shared servers come from environment variables. A test that needs one calls, for example,
// Redis(t). It returns the address. When nobody has started the server, it skips the test loudly,
// or fails it with ONCEWARD_REQUIRE_SERVERS=1. Other tests use the same servers: use only names
// that begin with Prefix(t). A test that kills, freezes, flushes or reconfigures a server asks for
// one of its own with Private.
package servertest

import (
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The environment variables that `scripts/servers.sh env` exports, and the two that say whether
// servers are wanted at all.
const (
	EnvRedis        = "ONCEWARD_REDIS"         // host:port
	EnvRedisPrimary = "ONCEWARD_REDIS_PRIMARY" // host:port
	EnvRedisReplica = "ONCEWARD_REDIS_REPLICA" // host:port
	EnvRedisCluster = "ONCEWARD_REDIS_CLUSTER" // host:port,host:port,...
	EnvValkey       = "ONCEWARD_VALKEY"        // host:port
	EnvPostgres     = "ONCEWARD_POSTGRES"      // postgres:// URL
	EnvMariaDB      = "ONCEWARD_MARIADB"       // DSN of go-sql-driver/mysql
	EnvKafka        = "ONCEWARD_KAFKA"         // host:port of a single node
	EnvKafka3       = "ONCEWARD_KAFKA3"        // host:port,host:port,host:port

	EnvServers = "ONCEWARD_SERVERS"         // 1: private servers may be started
	EnvRequire = "ONCEWARD_REQUIRE_SERVERS" // 1: a missing server fails the test
)

// Addresses lists the variables that name shared servers.
var Addresses = []string{
	EnvRedis, EnvRedisPrimary, EnvRedisReplica, EnvRedisCluster, EnvValkey,
	EnvPostgres, EnvMariaDB, EnvKafka, EnvKafka3,
}

// Redis returns host:port of a single Redis with an append-only file, synced every second.
func Redis(t testing.TB) string {
	t.Helper()
	return need(t, EnvRedis)
}

// Valkey returns host:port of a Valkey 8.1 with an append-only file, synced every second.
func Valkey(t testing.TB) string {
	t.Helper()
	return need(t, EnvValkey)
}

// RedisPrimary returns host:port of a Redis primary and of its replica.
func RedisPrimary(t testing.TB) (primary, replica string) {
	t.Helper()
	return need(t, EnvRedisPrimary), need(t, EnvRedisReplica)
}

// RedisCluster returns host:port of all the nodes of a Redis Cluster: three masters, three
// replicas.
func RedisCluster(t testing.TB) []string {
	t.Helper()
	return strings.Split(need(t, EnvRedisCluster), ",")
}

// Postgres returns a postgres:// URL of an account that may do everything.
func Postgres(t testing.TB) string {
	t.Helper()
	return need(t, EnvPostgres)
}

// MariaDB returns a DSN, as github.com/go-sql-driver/mysql reads it, of an account that may do
// everything.
func MariaDB(t testing.TB) string {
	t.Helper()
	return need(t, EnvMariaDB)
}

// Processlist is the table of the sessions of MariaDB, and of MySQL (make test-mysql), whose
// information_schema.processlist cannot be read while any session runs a statement with bytes that
// are not UTF-8.
const Processlist = "/*M! information_schema */ /*!80000 performance_schema */ .processlist"

// SessionVariable returns what to add to the DSN of MariaDB so that the variable tx_isolation or
// tx_read_only of its sessions has a value. MySQL, which may stand in for MariaDB (make
// test-mysql), calls the variable transaction_...; each server runs the SQL comment that is meant
// for it. The variable before the comments has no effect.
func SessionVariable(name, value string) string {
	return "&sql_auto_is_null=" +
		url.QueryEscape("0, /*!80000 transaction_"+name+" */ /*M! tx_"+name+" */ = "+value)
}

// Kafka returns the bootstrap address of a single Kafka node. It does not create topics by itself.
func Kafka(t testing.TB) []string {
	t.Helper()
	return strings.Split(need(t, EnvKafka), ",")
}

// Kafka3 returns the bootstrap addresses of three Kafka nodes: replication factor 3, two in sync.
func Kafka3(t testing.TB) []string {
	t.Helper()
	return strings.Split(need(t, EnvKafka3), ",")
}

// Program returns the path of a program that `scripts/servers.sh install` installs.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		leaveOut(t, name+" is not installed")
	}
	return path
}

// Required reports whether a missing server is a failure rather than a skip.
func Required() bool { return os.Getenv(EnvRequire) == "1" }

func need(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		leaveOut(t, variable+" is not set")
	}
	return value
}

// leaveOut ends the test: as failed if no server may be missing, otherwise as skipped.
func leaveOut(t testing.TB, why string) {
	t.Helper()
	if Required() {
		t.Fatalf("%s, and %s=1 says that nothing may be left out", why, EnvRequire)
	}
	t.Skipf("NOT RUN: %s: use make test", why)
}
