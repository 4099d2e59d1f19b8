// Package server opens the servers that operators' commands look at, by flags that the commands
// share. Passwords come in URLs or from the environment. No text that this package makes contains
// one.
package server

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // for database/sql
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // for database/sql

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/sqladapter"
)

// Options are the flags. Use them after Check.
type Options struct {
	// Redis is a URL. With Cluster, the URL names nodes of a Cluster; with ?master_name= it names
	// Sentinels.
	Redis   string
	Cluster bool
	// SQL is a DSN; see Flags.
	SQL string
	// NewFile allows a file of SQLite that does not exist yet.
	NewFile bool
	// MinPool is the least number of connections that a client of Redis may open. The default of
	// go-redis or the URL may allow more.
	MinPool int

	passwordEnv, password string
	engine                engine
}

// engine is the database that a DSN names.
type engine struct {
	dialect     sqladapter.Dialect
	driver, dsn string
	secret      string
}

// inRedis and inSQL name the settings that belong to only one kind of server.
var (
	inRedis = []string{"redis", "cluster", "redis-password-env", "prefix", "secret-env"}
	inSQL   = []string{"sql", "schema", "table"}
	// Names are the settings of both kinds of servers.
	Names = slices.Concat(inRedis, inSQL)
)

// Flags registers the flags.
func (o *Options) Flags(f *cli.Flags) {
	o.RedisFlags(f)
	o.SQLFlags(f)
	Exclude(f)
}

// Exclude ignores the settings of one kind of server if a flag names the other kind.
func Exclude(f *cli.Flags) {
	f.Instead("redis", inSQL...)
	f.Instead("sql", inRedis...)
}

// RedisFlags registers only the flags of Redis, for a command without databases; see CheckRedis.
func (o *Options) RedisFlags(f *cli.Flags) {
	f.StringVar(&o.Redis, "redis", "",
		"`URL` redis://user@host:port/db, or rediss:// with TLS; Sentinels: ?master_name=NAME, their others ?addr=host:port")
	f.BoolVar(&o.Cluster, "cluster",
		false, "the URL is of a Cluster; more nodes as ?addr=host:port&addr=...")
	f.StringVar(&o.passwordEnv, "redis-password-env",
		"", "`variable` of the environment that holds the password of Redis")
	f.Setting("redis", "cluster", "redis-password-env")
}

// SQLFlags registers only the flags of databases, for a command without Redis; see CheckSQL.
func (o *Options) SQLFlags(f *cli.Flags) {
	f.StringVar(&o.SQL, "sql", "",
		"`DSN`: postgres://user@host/db, mysql://user@host/db, a DSN of go-sql-driver, or sqlite:FILE; "+
			"env:VARIABLE takes it from the environment")
	f.Setting("sql")
}

// errRedis and errSQL quote only the expected form, because the given text may contain a password.
var (
	errRedis = errors.New(
		"--redis is not a URL of the form redis://user:password@host:port/db; a password with one of /?#@:% in it must be escaped, " +
			"or comes with --redis-password-env")
	errSQL = errors.New(
		"--sql is none of postgres://user@host/db, mysql://user@host:port/db, user@tcp(host:port)/db, sqlite:FILE and env:VARIABLE")
)

// Check parses the flags, and connects to nothing. It requires exactly one of --redis and --sql.
// Its errors name the flag.
func (o *Options) Check() error {
	switch {
	case o.Redis == "" && o.SQL == "":
		return errors.New("--redis or --sql is missing")
	case o.Redis != "" && o.SQL != "":
		return errors.New("--redis and --sql exclude each other")
	case o.Redis == "" && (o.Cluster || o.passwordEnv != ""):
		return errors.New("--cluster and --redis-password-env need --redis")
	}
	if o.Redis != "" {
		return o.CheckRedis()
	}
	return o.readDSN()
}

// CheckRedis is Check for a command that has only RedisFlags.
func (o *Options) CheckRedis() error {
	if o.passwordEnv != "" {
		if o.password = os.Getenv(o.passwordEnv); o.password == "" {
			return fmt.Errorf("--redis-password-env: the environment has no %s", o.passwordEnv)
		}
	}
	client, err := o.OpenRedis()
	if err != nil {
		return err
	}
	return client.Close()
}

// CheckSQL is Check for a command that has only SQLFlags.
func (o *Options) CheckSQL() error {
	if o.SQL == "" {
		return errors.New("--sql is missing")
	}
	return o.readDSN()
}

// OpenRedis makes a client, which connects when it is first used.
func (o *Options) OpenRedis() (redis.UniversalClient, error) {
	if !strings.Contains(o.Redis, "://") {
		o.Redis = "redis://" + o.Redis
	}
	u, err := url.Parse(o.Redis)
	if err != nil {
		return nil, errRedis
	}
	var client redis.UniversalClient
	switch {
	case o.Cluster:
		var c *redis.ClusterOptions
		if c, err = redis.ParseClusterURL(o.Redis); err == nil {
			o.override(&c.Password, &c.PoolSize, &c.ContextTimeoutEnabled)
			client = redis.NewClusterClient(c)
		}
	case u.Query().Has("master_name"):
		var c *redis.FailoverOptions
		if c, err = o.failover(); err == nil {
			client = redis.NewFailoverClient(c)
		}
	default:
		var c *redis.Options
		if c, err = redis.ParseURL(o.Redis); err == nil {
			o.override(&c.Password, &c.PoolSize, &c.ContextTimeoutEnabled)
			client = redis.NewClient(c)
		}
	}
	if err != nil {
		return nil, redisFault(err)
	}
	return client, nil
}

// override sets what the flags and the command say instead of the URL. A pool size of zero is the
// default of go-redis.
func (o *Options) override(password *string, pool *int, timeout *bool) {
	*password, *timeout = cmp.Or(o.password, *password), true
	if o.MinPool > cmp.Or(*pool, 10*runtime.GOMAXPROCS(0)) {
		*pool = o.MinPool
	}
}

// ErrClustered reports that --redis is a node of a Cluster, but the client is not a Cluster client.
var ErrClustered = errors.New("--redis: the server is part of a Cluster: add --cluster")

// Clustered reports whether client uses a node of a Cluster as if it were a single server. Such a
// node answers only for its own slots, and all other keys seem to be missing. Without the right to
// INFO, Clustered cannot know, and returns false.
func Clustered(ctx context.Context, client redis.UniversalClient) bool {
	single, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	info, err := single.Info(ctx, "cluster").Result()
	return err == nil && strings.Contains(info, "cluster_enabled:1")
}

// failover reads a URL of Sentinels. It uses the name and password of the URL for the servers,
// unless these have their own. go-redis takes them as the Sentinels'.
func (o *Options) failover() (*redis.FailoverOptions, error) {
	c, err := redis.ParseFailoverURL(o.Redis)
	if err != nil {
		return nil, err
	}
	if c.Username == "" && c.Password == "" {
		c.Username, c.Password = c.SentinelUsername, c.SentinelPassword
		c.SentinelUsername, c.SentinelPassword = "", ""
	}
	o.override(&c.Password, &c.PoolSize, &c.ContextTimeoutEnabled)
	return c, nil
}

// Sentinels returns the options with which --redis finds its server, or nil if it is not a URL of
// Sentinels.
func (o *Options) Sentinels() *redis.FailoverOptions {
	u, err := url.Parse(o.Redis)
	if err != nil || o.Redis == "" || o.Cluster || !u.Query().Has("master_name") {
		return nil
	}
	c, _ := o.failover() // nil with an error
	return c
}

// redisFault passes on only texts that cannot contain a part of a password.
func redisFault(err error) error {
	const unexpected, scheme = "redis: unexpected option: ", "redis: invalid URL scheme: "
	if option, ok := strings.CutPrefix(err.Error(), unexpected); ok {
		return fmt.Errorf("--redis has the unknown parameter %s", option)
	}
	if scheme, ok := strings.CutPrefix(err.Error(), scheme); ok {
		return fmt.Errorf("--redis has the scheme %q; redis, rediss and unix are known", scheme)
	}
	return errRedis
}

// Dialect is the dialect of --sql.
func (o *Options) Dialect() sqladapter.Dialect { return o.engine.dialect }

// OpenSQL makes a pool, which connects when it is first used. If patient is set, SQLite waits for
// other writers, unless the DSN has parameters of its own.
func (o *Options) OpenSQL(patient bool) (*sql.DB, error) {
	if o.engine.dialect == sqladapter.SQLite {
		dsn := o.engine.dsn
		if patient && !strings.Contains(dsn, "?") {
			dsn += "?_txlock=immediate&_pragma=busy_timeout(5000)"
		}
		return sqladapter.OpenSQLite(o.engine.driver, dsn)
	}
	db, err := sql.Open(o.engine.driver, o.engine.dsn)
	if err != nil {
		return nil, errSQL
	}
	return db, nil
}

// readDSN finds the engine for --sql.
func (o *Options) readDSN() error {
	dsn := o.SQL
	if name, ok := strings.CutPrefix(dsn, "env:"); ok {
		if dsn = os.Getenv(name); dsn == "" {
			return fmt.Errorf("--sql: the environment has no %s", name)
		}
	}
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		u, err := url.Parse(dsn)
		if err != nil || u.Host == "" && !u.Query().Has("host") {
			return errSQL
		}
		o.engine = engine{dialect: sqladapter.Postgres, driver: "pgx", dsn: dsn}
		o.engine.secret, _ = u.User.Password()
		return nil
	case scheme == "sqlite":
		return o.readSQLite(rest)
	case scheme == "file":
		return o.readSQLite(dsn)
	case scheme == "mysql" && strings.HasPrefix(rest, "//"):
		dsn = mysqlDSN(dsn)
	case strings.Contains(dsn, "@tcp(") || strings.Contains(dsn, "@unix("):
		dsn = strings.TrimPrefix(dsn, "mysql:")
	default:
		return errSQL
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return errSQL
	}
	o.engine = engine{dialect: sqladapter.MySQL, driver: "mysql", dsn: dsn, secret: c.Passwd}
	return nil
}

// mysqlDSN turns a URL into a DSN of go-sql-driver, or into a text that is not a DSN.
func mysqlDSN(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "?"
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host,
		strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	dsn := c.FormatDSN()
	if u.RawQuery != "" {
		joint := "?"
		if strings.Contains(dsn[strings.LastIndexByte(dsn, '/'):], "?") {
			joint = "&"
		}
		dsn += joint + u.RawQuery
	}
	return dsn
}

// readSQLite requires the file to exist, unless NewFile is set: opening it would create it.
func (o *Options) readSQLite(dsn string) error {
	file, _, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
	if _, err := os.Stat(file); err != nil && (!o.NewFile || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("--sql: there is no database %q: %w", file, errors.Unwrap(err))
	}
	o.engine = engine{dialect: sqladapter.SQLite, driver: "sqlite", dsn: dsn}
	return nil
}

// Hide removes passwords from a text. It is the last safeguard, for texts that come from drivers.
func (o *Options) Hide(text string) string {
	const least = 4 // shorter ones occur in half of all words
	secrets := []string{o.password, o.engine.secret}
	if u, err := url.Parse(o.Redis); err == nil {
		password, _ := u.User.Password()
		secrets = append(secrets, password, u.Query().Get("password"))
	}
	for _, secret := range secrets {
		if len(secret) >= least {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// Unanswered extends two kinds of errors, a timeout and a connection that the server has closed: it
// adds which server did not answer, and why that may be. It returns other errors unchanged.
func (o *Options) Unanswered(err error) error {
	addrs, _ := o.addrs() // without addresses, it says "the server"
	return Unanswered(err, addrs...)
}

// Unanswered is Options.Unanswered for servers at addrs.
func Unanswered(err error, addrs ...string) error {
	var timeout net.Error
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the server has closed the connection, as one does that wants TLS",
			err)
	}
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return err
	}
	where := "the server"
	if len(addrs) > 0 {
		where = strings.Join(addrs, ", ")
	}
	return fmt.Errorf("%w: no answer in time from %s: it hangs, or is cut off, or one side alone speaks TLS", err, where)
}

// CutOff closes c when ctx is canceled before stop is called. Without it, go-redis would go on
// waiting for a server that hangs after Ctrl-C, until its timeout, because it ignores the context
// while it reads.
func CutOff(ctx context.Context, c io.Closer) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) { // the error of a deadline says more
			_ = c.Close()
		}
	})
}

// Local reports whether the server is on this machine, as far as its address shows. For a Cluster
// it checks all nodes that the URL names, and for Sentinels it checks their addresses. It connects
// to nothing. Use it after Check.
func (o *Options) Local() (bool, error) {
	addrs, err := o.addrs()
	return err == nil && !slices.ContainsFunc(addrs, remote), err
}

// remote reports whether an address is not of this machine.
func remote(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	return !ThisMachine(host)
}

// addrs returns the addresses to connect to, without sockets.
func (o *Options) addrs() (addrs []string, err error) {
	if o.Redis == "" {
		all, _, err := o.endpoints()
		for _, e := range all {
			if !slices.Contains(addrs, e.addr) { // the same address without TLS is listed twice
				addrs = append(addrs, e.addr)
			}
		}
		return addrs, err
	}
	if s := o.Sentinels(); s != nil {
		return s.SentinelAddrs, nil
	}
	client, err := o.OpenRedis()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.Options().Addrs, nil
	case *redis.Client:
		if c.Options().Network != "unix" {
			return []string{c.Options().Addr}, nil
		}
	}
	return nil, nil
}

// endpoint is an address that --sql connects to.
type endpoint struct {
	addr  string
	plain bool // it may also be used without TLS
}

// endpoints returns the addresses of --sql, without sockets, and what the DSN says about TLS.
func (o *Options) endpoints() (all []endpoint, says string, err error) {
	switch o.engine.dialect {
	case sqladapter.Postgres:
		c, err := pgx.ParseConfig(o.engine.dsn)
		if err != nil {
			return nil, "", errSQL
		}
		// With sslmode=prefer, the default, one of the fallbacks is the same address without TLS.
		for _, f := range append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port,
			TLSConfig: c.TLSConfig}}, c.Fallbacks...) {
			if !strings.HasPrefix(f.Host, "/") {
				all = append(all, endpoint{net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))),
					f.TLSConfig == nil})
			}
		}
		return all, "sslmode allows a connection without TLS", nil
	case sqladapter.MySQL:
		c, err := mysql.ParseDSN(o.engine.dsn)
		if err != nil {
			return nil, "", errSQL
		}
		if c.Net != "unix" {
			all = []endpoint{{c.Addr, c.TLS == nil || c.AllowFallbackToPlaintext}}
		}
		return all, "tls is " + cmp.Or(c.TLSConfig, "not set"), nil
	}
	return nil, "", nil
}

// PlainSQL returns the addresses on other machines to which the DSN of --sql may connect without
// TLS, and what the DSN says about TLS. It leaves out sockets and addresses of this machine. Use it
// after CheckSQL.
func (o *Options) PlainSQL() (addrs []string, says string, err error) {
	all, says, err := o.endpoints()
	for _, e := range all {
		if e.plain && remote(e.addr) && !slices.Contains(addrs, e.addr) {
			addrs = append(addrs, e.addr)
		}
	}
	return addrs, says, err
}

// ThisMachine knows localhost, loopback addresses, and the addresses of this machine's interfaces.
// It does not look up other names.
func ThisMachine(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return ip != nil
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}
