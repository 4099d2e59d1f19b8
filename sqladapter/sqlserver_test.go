package sqladapter

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// serverError is shaped like that of go-mssqldb: a method returns its number. It is not a pointer.
type serverError int32

func (e serverError) Error() string         { return fmt.Sprintf("sql server says %d", int32(e)) }
func (e serverError) SQLErrorNumber() int32 { return int32(e) }

// serverRow is a mark in a serverTable.
type serverRow struct {
	owner               int64
	fingerprint, result []byte
}

// serverTable is a table with IGNORE_DUP_KEY: an INSERT leaves out existing ids.
type serverTable struct {
	t    *testing.T
	rows map[string]serverRow
	// batches are the ids of each INSERT.
	batches [][][]byte
}

func newServerTable(t *testing.T, m *Ledger, row serverRow, done ...string) *serverTable {
	table := &serverTable{t: t, rows: map[string]serverRow{}}
	for _, key := range done {
		e, err := m.entry(key, nil)
		require.NoError(t, err)
		table.rows[string(e.id[:])] = row
	}
	return table
}

// insert counts the new ids.
func (s *serverTable) insert() Step {
	return Step{Like: `INSERT INTO [onceward_marks] (`, Count: func(args []any) (fresh int64) {
		const most = 2100 - 2 // two are the statement and its declarations
		assert.LessOrEqual(s.t, len(args), most, "parameters")
		owner := args[0].(int64) //nolint:forcetypeassert // as the dialect has it
		var ids [][]byte
		for i := 1; i < len(args); i += 2 {
			id := args[i].([]byte) //nolint:forcetypeassert // as the dialect has it
			ids = append(ids, id)
			if _, found := s.rows[string(id)]; !found {
				fingerprint, _ := args[i+1].([]byte)
				s.rows[string(id)] = serverRow{owner: owner, fingerprint: fingerprint}
				fresh++
			}
		}
		s.batches = append(s.batches, ids)
		return fresh
	}}
}

// refused is an INSERT that fails because the key has no IGNORE_DUP_KEY.
func refused(number int32) Step {
	return Step{Like: `INSERT INTO [onceward_marks] (`, Err: serverError(number)}
}

func (s *serverTable) load() Step {
	return Step{Like: `WITH (READCOMMITTEDLOCK, FORCESEEK)`,
		Rows: func(args []any) (rows [][]sqldriver.Value) {
			for _, arg := range args {
				if r, found := s.rows[string(arg.([]byte))]; found { //nolint:forcetypeassert // as the dialect has it
					rows = append(rows, []sqldriver.Value{arg, r.owner, r.fingerprint, int64(1000),
						int64(4000), r.result})
				}
			}
			return rows
		}}
}

func TestSQLServerMarkTx(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	body := driver.FingerprintOf([]byte("body"))
	done := newServerTable(t, m,
		serverRow{owner: 42, fingerprint: body[:], result: []byte("receipt")}, testKey)
	fresh := func() *serverTable { return newServerTable(t, m, serverRow{}) }
	tests := map[string]struct {
		steps   []Step
		payload string
		outcome driver.Outcome
		result  string
		field   string
		err     error
		retry   bool
	}{
		"first": {steps: []Step{fresh().insert()}, outcome: dedup.Acquired},
		"duplicate": {steps: []Step{done.insert(), done.load()}, outcome: dedup.Duplicate,
			result: "receipt"},
		"same payload": {steps: []Step{done.insert(), done.load()}, payload: "body",
			outcome: dedup.Duplicate, result: "receipt"},
		"another payload": {steps: []Step{done.insert(), done.load()}, payload: "other",
			outcome: dedup.Mismatch, err: dedup.ErrMismatch},
		// The key was made by hand, without IGNORE_DUP_KEY.
		"primary key says so": {steps: []Step{refused(2627), done.load()},
			outcome: dedup.Duplicate, result: "receipt"},
		"unique index says so": {steps: []Step{refused(2601), done.load()},
			outcome: dedup.Duplicate, result: "receipt"},
		"deleted meanwhile": {steps: []Step{refused(2627), fresh().load(), fresh().insert()},
			outcome: dedup.Acquired},
		"lock timeout": {steps: []Step{refused(1222)}, outcome: dedup.InFlight,
			err: dedup.ErrInFlight, retry: true},
		"lock timeout of load": {steps: []Step{refused(2627),
			{Like: "FORCESEEK", Err: serverError(1222)}}, outcome: dedup.InFlight,
			err: dedup.ErrInFlight, retry: true},
		"deadlock":             {steps: []Step{refused(1205)}, err: serverError(1205), retry: true},
		"snapshot has changed": {steps: []Step{refused(3960)}, err: serverError(3960), retry: true},
		"uncommittable":        {steps: []Step{refused(3930)}, err: serverError(3930), retry: true},
		"ended, says driver":   {steps: []Step{refused(0)}, err: serverError(0), retry: true},
		// Prevents: a mark is committed without its effect.
		"no transaction": {steps: []Step{refused(sqlserverNotOpen)}, field: "tx",
			err: serverError(sqlserverNotOpen)},
		"constraint": {steps: []Step{refused(547)}, err: serverError(547)},
		"connection lost": {steps: []Step{{Like: "INSERT", Err: sqldriver.ErrBadConn}},
			err: sqldriver.ErrBadConn, retry: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tx, _ := beginScript(t, tt.steps...)
			var opts []dedup.Option
			if tt.payload != "" {
				opts = append(opts, dedup.WithFingerprint([]byte(tt.payload)))
			}
			mark, err := m.MarkTx(t.Context(), tx, testKey, opts...)
			assert.Equal(t, tt.outcome, mark.Outcome)
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.err == nil, err == nil)
			assert.Equal(t, tt.result, string(mark.Result))
			var input *dedup.InputError
			require.Equal(t, tt.field != "", errors.As(err, &input))
			assert.False(t, input != nil && input.Field != tt.field, "%v", tt.field)
			assert.Equal(t, tt.retry, Retryable(err), "Retryable(%v) = %v", err, !tt.retry)
		})
	}
}

// A statement that writes a mark first says that a duplicate must not end the transaction, and
// checks that there is a transaction.
func TestSQLServerWritesAreGuarded(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	for _, text := range []string{insertText(m), insertManyText(m),
		m.dialect.save(entry{}, nil).text} {
		off, open, insert := strings.Index(text, `SET XACT_ABORT OFF;`),
			strings.Index(text, `IF XACT_STATE() <> 1 THROW`), strings.Index(text, `INSERT INTO`)
		assert.GreaterOrEqual(t, off, 0, "not guarded: %s", text)
		assert.GreaterOrEqual(t, open, off, "not guarded: %s", text)
		assert.GreaterOrEqual(t, insert, open, "not guarded: %s", text)
	}
	assert.Contains(t, insertText(m), fmt.Sprintf(" THROW %d,", sqlserverNotOpen),
		"the number is not %d", sqlserverNotOpen)
}

func TestSQLServerMarkBatchTx(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	reqs := []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "a"}, {Key: ""}}
	want := []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.Acquired, dedup.Duplicate,
		dedup.Duplicate, dedup.Unknown}
	for name, steps := range map[string]func(*serverTable) []Step{
		"what is there is left out": func(s *serverTable) []Step {
			return []Step{s.insert(), s.load()}
		},
		// The statement is undone, also for the new rows.
		"what is there undoes all": func(s *serverTable) []Step {
			return []Step{refused(2627), s.load(), s.insert()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tx, _ := beginScript(t, steps(newServerTable(t, m, serverRow{owner: 42}, "b", "d"))...)
			marks, err := m.MarkBatchTx(t.Context(), tx, reqs)
			require.NoError(t, err)
			for i, mark := range marks {
				assert.Equal(t, want[i], mark.Outcome, "item %d", i)
			}
		})
	}
}

// A request has at most 2100 parameters. More keys need several statements, in one order of ids.
func TestSQLServerBatchOfThousands(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	table := newServerTable(t, m, serverRow{})
	reqs := make([]dedup.Request, 1100)
	for i := range reqs {
		reqs[i] = dedup.Request{Key: fmt.Sprint("key ", i),
			Fingerprint: driver.FingerprintOf([]byte{byte(i)})}
	}
	tx, _ := beginScript(t, table.insert(), table.insert(), table.insert())
	marks, err := m.MarkBatchTx(t.Context(), tx, reqs)
	require.NoError(t, err)
	for i, mark := range marks {
		require.True(t, mark.First(), "item %d: %v", i, mark.Outcome)
	}
	ids := slices.Concat(table.batches...)
	assert.Len(t, ids, len(reqs))
	assert.True(t, slices.IsSortedFunc(ids, slices.Compare[[]byte]))
}

func TestSQLServerSaveResult(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	for name, tt := range map[string]struct {
		step  Step
		field string
	}{
		"kept":                 {Step{Affected: 1}, ""},
		"no mark, or a result": {Step{Affected: 0}, "key"},
		"a result, by hand":    {Step{Err: serverError(2627)}, "key"},
		"no transaction":       {Step{Err: serverError(sqlserverNotOpen)}, "tx"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.step.Like = `INSERT INTO [onceward_marks_results] (id, result) SELECT`
			tx, s := beginScript(t, tt.step)
			err := m.SaveResultTx(t.Context(), tx, testKey, []byte("receipt"))
			var input *dedup.InputError
			require.Equal(t, tt.field != "", errors.As(err, &input))
			assert.False(t, input != nil && input.Field != tt.field, "%v", tt.field)
			assert.Equal(t, tt.field == "", err == nil)
			assert.Equal(t, []byte("receipt"), s.Args[0][1])
		})
	}
}

// Check tests the user's own server, because no other server can stand for it.
func TestSQLServerCheck(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	one := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(1)}} }
	hour := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(3_600_000)}} }
	level := []Step{{Like: `OBJECT_ID(N'[onceward_migrations]'`, Rows: one},
		{Like: "SELECT version", Rows: one}, {Query: peek(m)},
		{Query: m.dialect.window, Rows: hour}}
	insert := func(n int64) Step { return Step{Query: insertText(m), Affected: n} }
	second := func(n int64, err error) Step {
		return Step{Query: sqlserverImpatient + insertText(m), Affected: n, Err: err}
	}
	gone := Step{Query: peek(m)}
	for name, tt := range map[string]struct {
		steps []Step
		fails string
	}{
		"sound": {[]Step{insert(1), insert(0), second(0, serverError(1222)), gone},
			""},
		"a key made by hand": {[]Step{insert(1), {Query: insertText(m), Err: serverError(2627)},
			second(0, serverError(1222)), gone}, ""},
		"duplicates are new":   {[]Step{insert(1), insert(1)}, "changed 1, not 0"},
		"the other is skipped": {[]Step{insert(1), insert(0), second(0, nil)}, "did not wait"},
		"the other is first":   {[]Step{insert(1), insert(0), second(1, nil)}, "did not wait"},
		"the other is refused": {[]Step{insert(1), insert(0), second(0, serverError(2627))},
			"did not wait"},
		"the other fails": {[]Step{insert(1), insert(0), second(0, serverError(547))}, "547"},
		"a row outlives its tx": {[]Step{insert(1), insert(0), second(0, serverError(1222)),
			{Query: peek(m), Rows: serverStored}}, "no transactions"},
	} {
		t.Run(name, func(t *testing.T) {
			db, s := openScript(t, append(slices.Clone(level), tt.steps...)...)
			err := m.Check(t.Context(), db)
			require.Equal(t, tt.fails == "", err == nil)
			assert.False(t, err != nil && !strings.Contains(err.Error(), tt.fails), "%v", err)
			assert.Zero(t, s.Committed)
		})
	}
	// The pool has no second session that could wait.
	db, _ := openScript(t, append(slices.Clone(level), insert(1), insert(0), gone)...)
	db.SetMaxOpenConns(1)
	assert.NoError(t, m.Check(t.Context(), db), "a pool of one")
}

func serverStored(args []any) [][]sqldriver.Value {
	return [][]sqldriver.Value{{args[0], int64(1), nil, int64(1000), int64(1000), nil}}
}

// A version is one transaction, under a lock that ends with the transaction.
func TestSQLServerMigrations(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	one := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(1)}} }
	there, begun := Step{Like: `OBJECT_ID(N'[onceward_migrations]'`, Rows: one},
		[]Step{{Like: "sp_getapplock"}, {Like: `CREATE TABLE [onceward_migrations]`}}
	level := Step{Like: "SELECT version", Rows: one}
	db, s := openScript(t, slices.Concat([]Step{{Like: `OBJECT_ID(N'[onceward_migrations]'`}},
		begun, []Step{there, {Like: "SELECT version"}},
		[]Step{
			{Like: `CREATE TABLE [onceward_marks] (`},
			{Like: `CREATE TABLE [onceward_marks_results] (`},
			{Like: `ALTER TABLE [onceward_marks] `},
			{Like: `ALTER TABLE [onceward_marks_results] `},
			{Like: `CREATE TABLE [onceward_marks_meta] (`}, {Query: m.dialect.raise},
			{Query: peek(m)}, {Like: "SET version = 1"},
		}, begun, []Step{there, level})...)
	require.NoError(t, m.Migrations().Up(t.Context(), db))
	assert.Equal(t, 2, s.Begun)
	assert.Equal(t, 2, s.Committed)
	db, s = openScript(t, Step{Like: `OBJECT_ID(N'[onceward_migrations]'`},
		Step{Like: "sp_getapplock", Err: serverError(50918)})
	assert.ErrorIs(t, m.Migrations().Up(t.Context(), db), serverError(50918), "Up without the lock")
	assert.Zero(t, s.Committed, "Up without the lock")
}

func TestSQLServerDeleteExpired(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	hour := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(3_600_000)}} }
	old := make([]byte, len(driver.ID{}))
	old[15] = 0xab
	db, s := openScript(t, Step{Query: m.dialect.window, Rows: hour},
		Step{Query: m.dialect.expire, Rows: func([]any) [][]sqldriver.Value {
			return [][]sqldriver.Value{{old}}
		}},
		Step{Query: `DELETE FROM [onceward_marks_results] WHERE id IN (CAST(0x000000000000000000000000000000ab AS binary(16)))`},
		Step{Query: `DELETE FROM [onceward_marks] WHERE id IN (CAST(0x000000000000000000000000000000ab AS binary(16)))`})
	n, err := m.DeleteExpired(t.Context(), db, 1000)
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	assert.Equal(t, 1, s.Committed)
	args := s.Args[1]
	require.Equal(t, int64(3_600_000), args[0], "sent %v", args)
	assert.Equal(t, int64(1000), args[1], "sent %v", args)
	assert.Equal(t, sqldriver.IsolationLevel(sql.LevelReadCommitted), s.Isolation, "at isolation")
}

// TestGoldenSQLServer pins the statements around a mark.
func TestGoldenSQLServer(t *testing.T) {
	wantGolden(t, "sqlserver_transaction",
		[]string{serverBegun, serverSame, serverBack + `OFF`, serverBack + `ON`,
			sqlserverImpatient})
}

// SQL Server has no fences and no Runner. Both are refused before any statement.
func TestSQLServerIsForMarks(t *testing.T) {
	_, fence := NewFence(FenceConfig{Dialect: dialect.SQLServer, Group: "g"})
	_, runner := newMarks(t, dialect.SQLServer).Runner(new(sql.DB))
	for name, err := range map[string]error{"fence": fence, "runner": runner} {
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, name)
		assert.Equal(t, "Dialect", input.Field, name)
	}
}
