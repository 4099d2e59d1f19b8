package migrate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlserver"
)

// Options are the flags of the command.
type Options struct {
	Server server.Options
	// Dialect replaces a server for Print.
	Dialect       sqladapter.Dialect
	Kind          string
	Schema, Table string
	// Retention and Window are for marks. Windowed says that Window was given; zero is forever.
	Retention sqladapter.Retention
	Window    time.Duration
	Windowed  bool
	// IDTime and SnowflakeEpoch are for marks, too. They must match the Config of the programs.
	IDTime         sqladapter.IDTime
	SnowflakeEpoch time.Time
	// To is the version to reach, or newest.
	To               int
	Apply, Drop, Yes bool
	Print, Out       string
	JSON             bool

	dialect, retention string
	given              func(flag string) bool
}

// newest stands for the newest version that this program knows.
const newest = -1

var (
	kinds    = []string{"marks", "fence", "store", "outbox"}
	dialects = map[string]sqladapter.Dialect{"postgres": sqladapter.Postgres,
		"mysql": sqladapter.MySQL, "sqlite": sqladapter.SQLite, "sqlserver": sqlserver.Dialect}
	idTimes = map[string]sqladapter.IDTime{"uuidv7": sqladapter.UUIDv7, "ulid": sqladapter.ULID,
		"snowflake": sqladapter.Snowflake}
)

// Command returns the command.
func Command() *cli.Command { return (&Options{To: newest}).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "migrate", Short: "Show the version of this library's tables, and migrate them",
		Long: `Shows which version the tables have, and what is to be done to them. It changes nothing without
--apply. The version is on record in the table onceward_migrations, in the same schema.

--kind says what the tables are for: marks (sqladapter.Ledger), fence (sqladapter.Fence), store
(sqlstore.Store) or outbox (outbox.Outbox). The tables of marks keep the longest window that anybody
has asked for, so --window must be that of the programs; --apply raises it where it is shorter.

A version is one transaction. In MySQL and MariaDB, where each statement commits by itself, the next
run begins a version again that was cut off. Several runs may begin at once: one does the work, the
others wait for its lock and find it done.

--to with a version below the present one undoes versions, with everything that their tables hold:
it needs --drop, and asks unless --yes is given. Each change is a line of the log on standard error.

--print writes the SQL for another migration tool: sql, which makes the newest version from nothing;
files, for golang-migrate; goose. Files go to --out, and none is overwritten. They record what they
do, so that this command and the library's own Check see it.`,
		Example: `onceward migrate --sql postgres://user@host/db --kind store
onceward migrate --sql postgres://user@host/db --kind marks --window 7d --apply
onceward migrate --dialect postgres --kind outbox --print files --out migrations`,
		Exits: map[int]string{
			cli.Done: "nothing is to be done, or it is done, or printed",
			cli.No:   "something is to be done, or is left as it is",
			cli.Usage: "wrong usage, a server that cannot be reached or refuses, " +
				"or tables that are another program's, gone, or newer than this program",
		},
		Flags: o.flags,
		Check: o.check,
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Server.SQLFlags(f)
	f.BoolVar(&o.Server.NewFile, "new-file", false, "the file of SQLite may be new")
	f.ChoiceVar(&o.dialect, "dialect", "",
		"`name` of the engine, for --print without a server (sqlserver has marks only)",
		"postgres", "mysql", "sqlite", "sqlserver")
	f.Instead("dialect", "sql")
	f.ChoiceVar(&o.Kind, "kind", "", "`kind` of the tables", kinds...)
	f.Require("kind")
	f.StringVar(&o.Schema, "schema", "",
		"`schema` of the tables, which must exist (default the connection's own)")
	f.StringVar(&o.Table, "table", "",
		"`name` of the first table; others begin with it (default onceward_marks, onceward_fence, onceward_claims, onceward_outbox)")
	f.ChoiceVar(&o.retention, "retention", "deletes", "`retention` of marks", "deletes",
		"generations")
	f.DurationVar(&o.Window, "window", 0, "window of the marks, as in 7d; 0 keeps them forever")
	f.Func("idtime", "IDTime of marks: `kind` uuidv7, ulid, or snowflake:MS with the epoch in ms "+
		"since 1970 (default keys of any form)", o.setIDTime)
	f.Func("to", "`version` that is wanted (default the newest)", o.setTo)
	f.BoolVar(&o.Apply, "apply", false, "do what is to be done")
	f.BoolVar(&o.Drop, "drop", false, "allow to undo versions, with what their tables hold")
	f.BoolVar(&o.Yes, "yes", false, "do not ask")
	f.ChoiceVar(&o.Print, "print", "", "write SQL in this `form`", "sql", "files", "goose")
	f.StringVar(&o.Out, "out", "", "`directory` for --print files and goose")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	o.given = f.Changed
}

func (o *Options) setIDTime(text string) error {
	kind, epoch, dated := strings.Cut(text, ":")
	o.IDTime = idTimes[strings.ToLower(kind)]
	switch {
	case o.IDTime == 0:
		return errors.New("it must be uuidv7, ulid, or snowflake:MS")
	case dated != (o.IDTime == sqladapter.Snowflake):
		return errors.New("snowflake alone needs an epoch, as in snowflake:1288834974657")
	case !dated:
		return nil
	}
	ms, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return errors.New("the epoch must be milliseconds since 1970")
	}
	o.SnowflakeEpoch = time.UnixMilli(ms)
	return nil
}

func (o *Options) setTo(text string) (err error) {
	if o.To, err = strconv.Atoi(text); err != nil || o.To < 0 {
		return errors.New("a version is a number, such as 0 or 1")
	}
	return nil
}

// read parses the names of choices.
func (o *Options) read() error {
	o.Windowed = o.given("window")
	if o.retention == "generations" {
		o.Retention = sqladapter.Generations
	}
	switch {
	case o.dialect == "":
		err := o.Server.CheckSQL()
		o.Dialect = o.Server.Dialect()
		return err
	case o.Server.SQL != "":
		return errors.New("--dialect and --sql exclude each other")
	case o.Print == "":
		return errors.New("--dialect needs --print: a server is wanted with --sql")
	}
	o.Dialect = dialects[o.dialect]
	return nil
}

// check finds the first invalid flag.
func (o *Options) check([]string) error {
	if err := o.read(); err != nil {
		return err
	}
	marks, printed := o.Kind == "marks", o.Print != ""
	switch {
	case !marks && (o.Windowed || o.Retention != sqladapter.DeleteRows):
		return errors.New("--window and --retention need --kind marks")
	case !marks && o.IDTime != 0:
		return errors.New("--idtime needs --kind marks")
	case marks && !o.Windowed && (printed || o.Apply && o.To != 0):
		return errors.New("--window is missing: how long are marks kept? 0 keeps them forever")
	case o.Dialect == sqlserver.Dialect && !marks:
		return errors.New("--dialect sqlserver needs --kind marks: nothing else is for it")
	case o.Dialect == sqladapter.SQLite && !printed && o.Schema != "" && o.Schema != "main":
		return errors.New("--schema is of SQLite an attached database, and this command attaches none")
	case o.Server.NewFile && (!o.Apply || o.Dialect != sqladapter.SQLite):
		return errors.New("--new-file needs --apply and --sql sqlite:FILE")
	case printed && (o.Apply || o.Drop || o.Yes || o.To != newest || o.JSON):
		return errors.New("--print excludes --apply, --to, --drop, --yes and --json")
	case o.Out != "" && (!printed || o.Print == "sql"):
		return errors.New("--out needs --print files or goose")
	case o.Out == "" && printed && o.Print != "sql":
		return fmt.Errorf("--out is missing: the directory for --print %s", o.Print)
	case o.Drop && !o.Apply:
		return errors.New("--drop needs --apply")
	case o.Drop && o.To == newest:
		return errors.New("--drop needs --to")
	case o.Yes && !o.Drop:
		return errors.New("--yes needs --drop: nothing else is asked")
	case o.JSON && o.Drop && !o.Yes:
		return errors.New("--json needs --yes with --drop: a question is not JSON")
	}
	return nil
}
