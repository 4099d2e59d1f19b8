package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/sqlscript"
)

// TestGoldenStoreSQL pins every statement of the store; see TestGoldenSQL.
func TestGoldenStoreSQL(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite, MySQL} {
		t.Run(d.String(), func(t *testing.T) {
			s, err := New(new(sql.DB),
				Options{Dialect: d, Schema: "Shop", Table: "claims"})
			require.NoError(t, err)
			got := strings.Join(storeTexts(s), "\n\n") + "\n"
			file := filepath.Join("testdata", d.String()+".golden.sql")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got,
				"statements differ from %s (run with -update to accept):", file)
		})
	}
}

// storeTexts returns the statements for two rows.
func storeTexts(s *Store) []string {
	d, ids := s.dialect, make([]driver.ID, 2)
	texts := []string{s.Migrations().SQL(), d.begin()}
	for _, st := range []statement{
		d.insert(ids), d.load(ids, false), d.load(ids, true), d.save([]*claimRow{{}, {}}),
		d.remove(ids),
		d.due(true, 9), d.due(false, 9), d.page(driver.ID{}, "1, 5", 9),
		d.page(driver.ID{}, "1", 9),
		{d.clock(), nil}, d.scan(7, 9), {d.forgot(), nil}, {d.countForgets(), nil},
	} {
		texts = append(texts, st.text)
	}
	if quick, ok := d.(quickDialect); ok {
		texts = append(texts, quick.insertClaims(make([]*driver.ClaimRequest, 0)).text,
			quick.finishClaims(make([]*driver.Finish, 0)).text)
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// TestSweepInPackets: a sweep releases claims, which keep their steps. If it wrote all of them in
// one packet, the server could refuse it, and the next sweep would find the same claims.
func TestSweepInPackets(t *testing.T) {
	lapsed := Step{Like: "lease_end <=", Rows: func([]any) (rows [][]sqldriver.Value) {
		for n := range 3 {
			r := claimRow{id: driver.ID{byte(n)}, state: driver.StateInProgress, expires: 1 << 60,
				steps: make([]byte, chunkBytes/2)}
			var row []sqldriver.Value
			for _, v := range r.args() {
				row = append(row, v)
			}
			rows = append(rows, append(row, int64(1)))
		}
		return rows
	}}
	db, s := openScript(t, Step{Like: "expires <="}, lapsed, saves, saves)
	store, err := New(db, Options{Dialect: MySQL})
	require.NoError(t, err)
	swept, err := store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	assert.Equal(t, SweepResult{Released: 3}, swept)
	require.Len(t, s.Args, 4)
	assert.Len(t, s.Args[2], 2*len(claimColumns), "two rows were to be written")
	assert.Len(t, s.Args[3], len(claimColumns), "one row was to be written")
}

var scripted = driver.Renewal{ID: driver.ID{1}, Token: driver.Token{2}, Lease: time.Minute,
	Hold: time.Hour}

// heldRow is the live claim of scripted, as a driver returns it.
func heldRow([]any) [][]sqldriver.Value {
	now := time.Now().UnixMicro()
	r := claimRow{
		id: scripted.ID, token: scripted.Token, state: driver.StateInProgress,
		attempt: 1, fence: 7, leaseEnd: now + 1e9, expires: now + 2e9,
	}
	row := make([]sqldriver.Value, 0, len(claimColumns)+1)
	for _, v := range r.args() {
		row = append(row, v)
	}
	return [][]sqldriver.Value{append(row, now)}
}

var (
	loads = Step{Like: "FOR UPDATE", Rows: heldRow}
	saves = Step{Like: "INSERT INTO", Affected: 1}
)

func scriptStore(t *testing.T, steps ...Step) (*Store, *Script) {
	t.Helper()
	db, s := openScript(t, steps...)
	store, err := New(db, Options{Dialect: MySQL})
	require.NoError(t, err)
	return store, s
}

// TestStoreTransaction: a renewal meets each error that a transaction can have.
func TestStoreTransaction(t *testing.T) {
	deadlock := func(s Step) Step { s.Err = sqlscript.NewMySQLError(1213); return s }
	full := saves
	full.Err = sqlscript.NewMySQLError(1114)
	tests := map[string]struct {
		steps   []Step
		commits []error
		begun   int
		want    error // nil: held
	}{
		"goes well": {steps: []Step{loads, saves}, begun: 1},
		"deadlocks twice": {steps: []Step{deadlock(loads), loads, deadlock(saves),
			loads, saves}, begun: 3},
		"deadlocks for ever": {steps: slices.Repeat([]Step{deadlock(loads)}, maxTries),
			begun: maxTries, want: sqlscript.NewMySQLError(1213)},
		"is refused by COMMIT": {steps: []Step{loads, saves, loads, saves},
			commits: []error{sqlscript.NewMySQLError(1213)}, begun: 2},
		"gets no answer to COMMIT": {steps: []Step{loads, saves}, commits: []error{errInvalidConn},
			begun: 1, want: errInvalidConn},
		"finds no room": {steps: []Step{loads, full},
			begun: 1, want: driver.ErrStoreFull},
		"loses its connection": {steps: []Step{{Like: "FOR UPDATE", Err: errInvalidConn}},
			begun: 1, want: errInvalidConn},
		"loses it between the rows": {steps: []Step{{Like: "FOR UPDATE", Rows: heldRow,
			NextErr: errInvalidConn}}, begun: 1, want: errInvalidConn},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := scriptStore(t, tt.steps...)
				s.Commits = tt.commits
				a := store.Renew(t.Context(), []driver.Renewal{scripted})[0]
				assert.Equal(t, tt.want == nil, a.Held)
				assert.True(t, isError(a.Err, tt.want), "%v", a.Err)
				assert.Equal(t, tt.begun, s.Begun)
				assert.Equal(t, sqldriver.IsolationLevel(sql.LevelReadCommitted), s.Isolation,
					"isolation level %v", sql.IsolationLevel(s.Isolation))
			})
		})
	}
}

// serialization is PostgreSQL's error for a transaction that it cannot serialize.
type serialization struct{}

func (serialization) Error() string    { return "could not serialize access" }
func (serialization) SQLState() string { return "40001" }

// TestStatementThatIsNotOrdered: if connections are SERIALIZABLE, a single statement can fail again
// and again. A transaction at READ COMMITTED does not.
func TestStatementThatIsNotOrdered(t *testing.T) {
	db, s := openScript(t, Step{Like: "UPDATE", Err: serialization{}},
		Step{Like: "FOR UPDATE", Err: errInvalidConn})
	store, err := New(db, Options{Dialect: Postgres})
	require.NoError(t, err)
	a := store.Finish(t.Context(), []driver.Finish{{ID: scripted.ID, Token: scripted.Token,
		Fence: 7, Attempt: 1, State: driver.StateSucceeded, Lease: time.Minute, Hold: time.Hour,
		Window: time.Hour, Until: time.Now().Add(time.Minute)}})[0]
	assert.ErrorIs(t, a.Err, errInvalidConn)
	assert.Equal(t, 1, s.Begun)
	assert.Equal(t, sqldriver.IsolationLevel(sql.LevelReadCommitted), s.Isolation)
}

var errInvalidConn = errors.New("invalid connection")

// isError compares the texts of a server's errors.
func isError(err, want error) bool {
	return errors.Is(err, want) ||
		err != nil && want != nil && strings.Contains(err.Error(), want.Error())
}

// TestStoreLeavesWithItsContext: a driver may ignore the context of a COMMIT. The call ends anyway.
func TestStoreLeavesWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := scriptStore(t, loads, saves)
		hang := make(chan struct{})
		defer func() { close(hang); synctest.Wait() }()
		s.OnCommit = func(context.Context) error { <-hang; return nil }
		cause := errors.New("the worker stops")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		time.AfterFunc(time.Second, func() { cancel(cause) })
		began := time.Now()
		a := store.Renew(ctx, []driver.Renewal{scripted})[0]
		assert.False(t, a.Held, "%v", a.Held)
		assert.ErrorIs(t, a.Err, cause)
		assert.ErrorIs(t, a.Err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(began), "it has taken")
	})
}

// TestStoreBadInput: a bad item is not sent to the database, and no other item fails.
func TestStoreBadInput(t *testing.T) {
	store, s := scriptStore(t)
	bad := func(edit func(*driver.Finish)) driver.Finish {
		c := driver.Finish{State: driver.StateSucceeded, Window: time.Hour, Lease: time.Minute}
		edit(&c)
		return c
	}
	fields := []string{"Label", "Fence", "Attempt", "Result", "Window", "State"}
	answers := store.Finish(t.Context(), []driver.Finish{
		bad(func(c *driver.Finish) { c.Label = strings.Repeat("x", 65) }),
		bad(func(c *driver.Finish) { c.Fence = 1 << 63 }),
		bad(func(c *driver.Finish) { c.Attempt = 1 << 31 }),
		bad(func(c *driver.Finish) { c.Result = make([]byte, DefaultMaxResult+1) }),
		bad(func(c *driver.Finish) { c.Window = 0 }),
		bad(func(c *driver.Finish) { c.State = driver.StateUncertain }),
	})
	for i, a := range answers {
		wantField(t, a.Err, fields[i])
	}
	renewal := driver.Renewal{Lease: time.Minute, Steps: make([]byte, 64<<10+1)}
	wantField(t, store.Renew(t.Context(), []driver.Renewal{renewal})[0].Err, "Steps")
	wantField(t, store.Forget(t.Context(), make([]driver.ID, 1), -1)[0], "hold")
	_, err := store.Sweep(t.Context(), 0)
	wantField(t, err, "limit")
	for field, opts := range map[string]ListOptions{
		"ListOptions.Limit": {Limit: -1}, "ListOptions.States": {States: []driver.State{9}},
		"ListOptions.Cursor": {Cursor: "x"},
	} {
		_, err := store.List(t.Context(), opts)
		wantField(t, err, field)
	}
	wantField(t, store.RunSweeper(t.Context(), SweeperConfig{Every: -1}), "SweeperConfig.Every")
	assert.Zero(t, s.Begun)
}
