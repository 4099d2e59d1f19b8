package outbox

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/internal/sqlname"
)

// Defaults of a [Config].
const (
	DefaultTable    = "onceward_outbox"
	DefaultIDHeader = "onceward-id"
	// DefaultMaxPayload, in bytes, leaves room for the longest key, headers and id within what
	// Kafka, sarama and franz-go take by default, which is 1,000,012 bytes with franz-go.
	DefaultMaxPayload = 900_000
)

// maxMaxPayload keeps a row within the packet size that MySQL takes by default.
const maxMaxPayload = 8 << 20

const maxHistory = 10 * 365 * 24 * time.Hour

// Config says where the outbox is. Dialect is required.
type Config struct {
	// Dialect of the database. No default.
	Dialect Dialect
	// Schema that holds the tables (MySQL: the database; SQLite: the attached database), of
	// the form [A-Za-z_][A-Za-z0-9_]{0,62}. It must exist. Default: the connection's own.
	Schema string
	// Table that holds the messages; same form as Schema. The other tables have names
	// that begin with it. Default: [DefaultTable].
	Table string
	// IDHeader is the header that carries Message.ID, 1 to 255 bytes of UTF-8. All relays of one
	// table need the same IDHeader. Default: [DefaultIDHeader].
	IDHeader string
	// MaxPayload is the size of the largest Message.Payload, up to 8 MiB. It should be what the
	// broker accepts. Default: [DefaultMaxPayload]. Unit: bytes.
	MaxPayload int
	// History is how long a published message is kept, in the table "<table>_published", for
	// [Outbox.Published]: a second to 10 years. Relays delete older ones. It costs an INSERT for
	// each message. All relays of one table need the same History. Default: none are kept.
	History time.Duration
}

// Outbox is a table of messages that are to be published. Make it with [New]. It holds no
// connection, starts no goroutine and is safe for concurrent use.
type Outbox struct {
	dialect    *dialect
	migrations *sqlmigrate.Migrations
	tables     []string
	idHeader   string
	maxPayload int
	channel    string
	history    time.Duration

	bounds atomic.Pointer[bounds] // as a relay of this process has found them, or nil
	// scheduled counts the calls of InsertTx with scheduled messages, and notified is that number
	// at the last Notify. When it has grown, Notify sets askDue, so that a relay asks when they are
	// due. InsertTx must not set it: a relay that asks before the COMMIT finds nothing, and does
	// not ask again.
	scheduled, notified atomic.Int64
	askDue              atomic.Bool

	relays, notifiers bells // of those that run in this process
}

// New checks the configuration; an [*InputError] names what is wrong. It does not touch the
// database; see [Outbox.Migrate].
func New(cfg Config) (*Outbox, error) {
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	if cfg.IDHeader == "" {
		cfg.IDHeader = DefaultIDHeader
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	switch {
	case len(cfg.IDHeader) > 255 || !utf8.ValidString(cfg.IDHeader):
		return nil, inputError("IDHeader", "must be 1 to 255 bytes of UTF-8")
	case cfg.MaxPayload < 1 || cfg.MaxPayload > maxMaxPayload:
		return nil, inputError("MaxPayload",
			fmt.Sprintf("is %d, must be 1 to %d", cfg.MaxPayload, maxMaxPayload))
	case cfg.History != 0 && (cfg.History < time.Second || cfg.History > maxHistory):
		return nil, inputError("History",
			fmt.Sprintf("is %v, must be %v to %v, or 0", cfg.History, time.Second, maxHistory))
	}
	tables, err := newNames(cfg)
	if err != nil {
		return nil, err
	}
	d, err := newDialect(cfg.Dialect, tables)
	if err != nil {
		return nil, err
	}
	migrations, err := newMigrations(cfg, d, tables.table)
	if err != nil {
		return nil, err
	}
	return &Outbox{
		dialect: d, migrations: migrations, tables: tables.all(),
		idHeader: cfg.IDHeader, maxPayload: cfg.MaxPayload,
		channel: sqlname.Derive(cfg.Table, "_wake"), history: cfg.History,
	}, nil
}

// notMigrated names a table of o that does not exist.
func (o *Outbox) notMigrated(err error) error { return sqlerr.NotMigrated(err, o.tables...) }

// ready refuses an Outbox that New has not made, before any statement.
func (o *Outbox) ready() error {
	if o == nil || o.dialect == nil {
		return inputError("Outbox", "is nil or was not made by New")
	}
	return nil
}

// names holds the tables' names for statements, quoted, with the schema when there is one.
type names struct{ table, parked, shards, scheduled, published string }

// all are the names of the tables.
func (n names) all() []string {
	return []string{n.table, n.parked, n.shards, n.scheduled, n.published}
}

func newNames(cfg Config) (names, error) {
	switch {
	case !sqlname.Valid(cfg.Table):
		return names{}, inputError("Table", sqlname.Form)
	case cfg.Table == sqlmigrate.Table:
		return names{}, inputError("Table", "is "+sqlmigrate.Table+", where versions are recorded")
	case cfg.Schema != "" && !sqlname.Valid(cfg.Schema):
		return names{}, inputError("Schema", sqlname.Form)
	case cfg.Dialect == SQLite && strings.HasPrefix(strings.ToLower(cfg.Table), "sqlite_"):
		return names{}, inputError("Table", "begins with sqlite_, which SQLite reserves")
	}
	mark := byte('"')
	if cfg.Dialect == MySQL {
		mark = '`'
	}
	within := ""
	if cfg.Schema != "" {
		within = sqlname.Quote(cfg.Schema, mark) + "."
	}
	suffixed := func(suffix string) string {
		return within + sqlname.Quote(sqlname.Derive(cfg.Table, suffix), mark)
	}
	return names{table: within + sqlname.Quote(cfg.Table, mark), parked: suffixed("_parked"),
		shards: suffixed("_shards"), scheduled: suffixed("_scheduled"),
		published: suffixed("_published")}, nil
}
