package migrate

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/flags"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlserver"
)

// Options are the flags of the command.
type Options struct {
	Server server.Options
	// Dialect takes the place of a server for Print.
	Dialect sqladapter.Dialect
	// Kind is what the tables are for: marks, fence, store or outbox.
	Kind string
	// Schema and Table say where they are; an empty Table is the default of Kind.
	Schema, Table string
	// Retention and Window are of marks. Windowed tells that Window was given, zero for ever.
	Retention sqladapter.Retention
	Window    time.Duration
	Windowed  bool
	// IDTime and SnowflakeEpoch are of marks, too: those of the Config of the programs.
	IDTime         sqladapter.IDTime
	SnowflakeEpoch time.Time
	// To is the version that is wanted, or newest.
	To int
	// Apply changes the tables, Drop allows to undo versions, Yes asks no question.
	Apply, Drop, Yes bool
	// Print is sql, files or goose, and Out the directory for files.
	Print, Out string
	// JSON writes for programs.
	JSON bool
}

// newest stands for the newest version that this program has.
const newest = -1

var (
	kinds    = []string{"marks", "fence", "store", "outbox"}
	prints   = []string{"sql", "files", "goose"}
	dialects = []sqladapter.Dialect{sqladapter.Postgres, sqladapter.MySQL, sqladapter.SQLite,
		sqlserver.Dialect}
)

const usage = `Usage: onceward migrate -sql DSN -kind marks|fence|store|outbox [-table NAME] [-apply] [flags]
       onceward migrate -sql DSN -kind KIND [-table NAME] -to N -apply -drop [flags]
       onceward migrate -dialect NAME|-sql DSN -kind KIND [-table NAME] -print sql|files|goose [flags]

Shows which version the tables have, and what is to be done to them. It changes nothing without
-apply. The version is on record in the table onceward_migrations, in the same schema.

-kind is what the tables are for: marks (sqladapter.Ledger), fence (sqladapter.Fence), store
(sqlstore.Store) or outbox (outbox.Outbox). The tables of marks keep the longest window that
anybody has asked for, so -window must be that of the programs; -apply raises it where it is
shorter.

A version is one transaction; in MySQL and MariaDB, where each statement commits by itself, one
that was cut off is begun again by the next run. Several runs may begin at once: one does it, the
others wait for its lock and find it done.

-to with a version below the one that is there undoes versions, with all that their tables hold:
it needs -drop, and asks unless -yes is given.

-print writes the SQL for those who migrate with their own tool: sql, what makes the newest
version from nothing; files, for golang-migrate; goose. Files go to -out, and none is overwritten.
They record what they do, so that this command and the library's own Check see it.

Exit code: 0 nothing is to be done, or it is done, or printed; 1 something is to be done, or is
left as it is; 2 wrong flags, a server that cannot be reached or refuses, or tables that are
another's, gone, or newer than this program; 130 interrupted.

Flags:
`

// raw are flags that need a second look.
type raw struct{ dialect, retention string }

// ParseOptions reads the flags. flag.ErrHelp is returned after usage has been written to out; any
// other error names the flag.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	o := Options{To: newest}
	var r raw
	f := flag.NewFlagSet("migrate", flag.ContinueOnError)
	o.Server.SQLFlags(f)
	f.BoolVar(&o.Server.NewFile, "new-file", false, "the file of SQLite may be new")
	f.StringVar(&r.dialect, "dialect", "",
		"`name` of the engine, for -print without a server: postgres, mysql, sqlite, sqlserver (marks alone)")
	f.StringVar(&o.Kind, "kind", "", "`kind` of the tables: marks, fence, store, outbox")
	f.StringVar(&o.Schema, "schema", "",
		"`schema` of the tables, which must exist (default the connection's own)")
	f.StringVar(&o.Table, "table", "",
		"`name` of the first table; others begin with it (default onceward_marks, onceward_fence, onceward_claims, onceward_outbox)")
	f.StringVar(&r.retention, "retention", "deletes",
		"`retention` of marks: deletes or generations")
	f.Func("window", "window of the marks, as in `72h`; 0 keeps them for ever", o.setWindow)
	f.Func("idtime", "IDTime of marks: `kind` uuidv7, ulid, or snowflake:MS with the epoch in ms "+
		"since 1970 (default keys of any form)", o.setIDTime)
	f.Func("to", "`version` that is wanted (default the newest)", o.setTo)
	f.BoolVar(&o.Apply, "apply", false, "do what is to be done")
	f.BoolVar(&o.Drop, "drop", false, "allow to undo versions, with what their tables hold")
	f.BoolVar(&o.Yes, "yes", false, "do not ask")
	f.StringVar(&o.Print, "print", "", "write SQL: `form` sql, files (golang-migrate) or goose")
	f.StringVar(&o.Out, "out", "", "`directory` for -print files and goose")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	if err := flags.Parse(f, args, usage, out); err != nil {
		return o, err
	}
	if err := o.read(r); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o *Options) setWindow(text string) (err error) {
	o.Windowed = true
	if o.Window, err = time.ParseDuration(text); err != nil {
		return errors.New("it is no duration such as 72h")
	}
	return nil
}

func (o *Options) setIDTime(text string) error {
	kind, epoch, dated := strings.Cut(text, ":")
	at := slices.IndexFunc([]sqladapter.IDTime{sqladapter.UUIDv7, sqladapter.ULID,
		sqladapter.Snowflake}, func(k sqladapter.IDTime) bool {
		return strings.EqualFold(k.String(), kind)
	})
	if at < 0 {
		return errors.New("it must be uuidv7, ulid, or snowflake:MS")
	}
	o.IDTime = sqladapter.UUIDv7 + sqladapter.IDTime(at)
	if dated != (o.IDTime == sqladapter.Snowflake) {
		return errors.New("snowflake alone needs an epoch, as in snowflake:1288834974657")
	}
	if dated {
		ms, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return errors.New("the epoch must be milliseconds since 1970")
		}
		o.SnowflakeEpoch = time.UnixMilli(ms)
	}
	return nil
}

func (o *Options) setTo(text string) (err error) {
	if o.To, err = strconv.Atoi(text); err != nil || o.To < 0 {
		return errors.New("it is no version, such as 0 or 1")
	}
	return nil
}

// read finds what names stand for.
func (o *Options) read(r raw) error {
	if !slices.Contains(kinds, o.Kind) {
		return fmt.Errorf("-kind is %q; one of %s is wanted", o.Kind, strings.Join(kinds, ", "))
	}
	if o.Print != "" && !slices.Contains(prints, o.Print) {
		return fmt.Errorf("-print is %q; one of %s is wanted", o.Print, strings.Join(prints, ", "))
	}
	switch r.retention {
	case "deletes":
	case "generations":
		o.Retention = sqladapter.Generations
	default:
		return fmt.Errorf("-retention is %q; deletes or generations is wanted", r.retention)
	}
	if r.dialect != "" {
		at := slices.IndexFunc(dialects, func(d sqladapter.Dialect) bool {
			return d.String() == r.dialect
		})
		switch {
		case o.Server.SQL != "":
			return errors.New("-dialect and -sql exclude each other")
		case o.Print == "":
			return errors.New("-dialect needs -print: a server is wanted with -sql")
		case at < 0:
			return fmt.Errorf("-dialect is %q; one of postgres, mysql, sqlite, sqlserver is wanted",
				r.dialect)
		}
		o.Dialect = dialects[at]
		return nil
	}
	if err := o.Server.CheckSQL(); err != nil {
		return err
	}
	o.Dialect = o.Server.Dialect()
	return nil
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	marks := o.Kind == "marks"
	switch {
	case !marks && (o.Windowed || o.Retention != sqladapter.DeleteRows):
		return errors.New("-window and -retention need -kind marks")
	case !marks && o.IDTime != 0:
		return errors.New("-idtime needs -kind marks")
	case marks && !o.Windowed && (o.Print != "" || o.Apply && o.To != 0):
		return errors.New("-window is missing: how long are marks kept? 0 keeps them for ever")
	case o.Dialect == sqlserver.Dialect && !marks:
		return errors.New("-dialect sqlserver needs -kind marks: nothing else is for it")
	case o.Dialect == sqladapter.SQLite && o.Print == "" && o.Schema != "" && o.Schema != "main":
		return errors.New("-schema is of SQLite an attached database, and this command attaches none")
	case o.Server.NewFile && (!o.Apply || o.Dialect != sqladapter.SQLite):
		return errors.New("-new-file needs -apply and -sql sqlite:FILE")
	}
	if o.Print != "" {
		return o.checkPrint()
	}
	switch {
	case o.Out != "":
		return errors.New("-out needs -print files or goose")
	case o.Drop && !o.Apply:
		return errors.New("-drop needs -apply")
	case o.Drop && o.To == newest:
		return errors.New("-drop needs -to")
	case o.Yes && !o.Drop:
		return errors.New("-yes needs -drop: nothing else is asked")
	case o.JSON && o.Drop && !o.Yes:
		return errors.New("-json needs -yes with -drop: a question is no JSON")
	}
	return nil
}

func (o *Options) checkPrint() error {
	switch {
	case o.Apply || o.Drop || o.Yes || o.To != newest || o.JSON:
		return errors.New("-print excludes -apply, -to, -drop, -yes and -json")
	case o.Print == "sql" && o.Out != "":
		return errors.New("-out needs -print files or goose")
	case o.Print != "sql" && o.Out == "":
		return fmt.Errorf("-out is missing: the directory for -print %s", o.Print)
	}
	return nil
}
