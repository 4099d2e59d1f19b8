package sqladapter

import (
	sqldriver "database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// The examples of RFC 9562 and of the specification of ULID, and an id of Discord's documentation.
const (
	exampleUUIDv7    = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f" // 2022-02-22 19:22:22 UTC
	exampleULID      = "01ARZ3NDEKTSV4RRFFQ69G5FAV"           // 2016-07-30 23:54:10.259 UTC
	exampleSnowflake = "175928847299117063"                   // 2016-04-30 11:18:25.796 UTC
)

var discordEpoch = time.UnixMilli(1_420_070_400_000)

// seconds returns the first four bytes of a row's id, which are its time.
func seconds(id driver.ID) int64 { return int64(binary.BigEndian.Uint32(id[:4])) }

// newIDs returns a Ledger for ids of the given kind.
func newIDs(t testing.TB, d Dialect, kind IDTime) *Ledger {
	t.Helper()
	cfg := Config{Dialect: d, Namespace: "payments", Window: time.Hour, IDTime: kind}
	if kind == Snowflake {
		cfg.SnowflakeEpoch = discordEpoch
	}
	m, err := New(cfg)
	require.NoError(t, err)
	return m
}

// TestIDTime: a row's id is the time of the key's id, and then the first 96 bits of the digest of
// the key with its namespace and scope.
func TestIDTime(t *testing.T) {
	for _, row := range []struct {
		kind IDTime
		key  string
		want string
	}{
		{UUIDv7, exampleUUIDv7, "2022-02-22T19:22:22Z"},
		{UUIDv7, strings.ToUpper(exampleUUIDv7), "2022-02-22T19:22:22Z"},
		{ULID, exampleULID, "2016-07-30T23:54:10Z"},
		{ULID, strings.ToLower(exampleULID), "2016-07-30T23:54:10Z"},
		{Snowflake, exampleSnowflake, "2016-04-30T11:18:25Z"},
		// Ids of wrong clocks, up to the largest times. The time wraps around.
		{UUIDv7, "00000000-0000-7000-8000-000000000000", "1970-01-01T00:00:00Z"},
		{UUIDv7, "ffffffff-ffff-7fff-bfff-ffffffffffff", "2042-12-13T16:54:30Z"},
		{ULID, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "2042-12-13T16:54:30Z"},
		{Snowflake, "1", "2015-01-01T00:00:00Z"},
		{Snowflake, "9223372036854775807", "2084-09-06T15:47:35Z"},
	} {
		m := newIDs(t, Postgres, row.kind)
		e, err := m.entry(row.key, nil)
		require.NoError(t, err, "%v %s", row.kind, row.key)
		got := time.Unix(seconds(e.id), 0).UTC().Format(time.RFC3339)
		assert.Equal(t, row.want, got, "%v %s", row.kind, row.key)
		digest, err := driver.NewID("payments", "", row.key)
		require.NoError(t, err)
		assert.Equal(t, digest[:12], e.id[4:], "%v %s", row.kind, row.key)
	}
}

// TestIDTimeNeverChanges: with other row ids for the same keys all records would be lost.
func TestIDTimeNeverChanges(t *testing.T) {
	for _, row := range []struct {
		kind            IDTime
		key, form, want string
	}{
		{UUIDv7, exampleUUIDv7, "uuidv7", "621537ee"},
		{ULID, exampleULID, "ulid", "579d3e22"},
		{Snowflake, exampleSnowflake, "snowflake since 1420070400000", "57249481"},
	} {
		m := newIDs(t, MySQL, row.kind)
		assert.Equal(t, row.form, m.ids.text())
		e, err := m.entry(row.key, []dedup.Option{dedup.WithScope("tenant")})
		require.NoError(t, err)
		assert.Equal(t, row.want, hex.EncodeToString(e.id[:4]))
	}
	assert.Equal(t, "digest", newMarks(t, MySQL).ids.text())
}

// TestIDTimeKeepsScopesApart: one id in two scopes or namespaces is two rows, next to each other.
func TestIDTimeKeepsScopesApart(t *testing.T) {
	m := newIDs(t, Postgres, UUIDv7)
	one, err := m.entry(exampleUUIDv7, []dedup.Option{dedup.WithScope("a")})
	require.NoError(t, err)
	two, err := m.entry(exampleUUIDv7, []dedup.Option{dedup.WithScope("b")})
	require.NoError(t, err)
	assert.Equal(t, seconds(one.id), seconds(two.id))
	assert.NotEqual(t, one.id, two.id)
	m.namespace = "orders"
	three, err := m.entry(exampleUUIDv7, []dedup.Option{dedup.WithScope("a")})
	require.NoError(t, err)
	assert.NotEqual(t, one.id, three.id)
}

// otherKeys are keys that are not of the kind, or not in its only spelling.
var otherKeys = map[IDTime][]string{
	UUIDv7: {
		"evt_1", exampleULID, exampleSnowflake, exampleUUIDv7[1:], exampleUUIDv7 + "0",
		"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", // version 1
		"9b2b8a36-3b2c-4d3b-8f1e-1c2d3e4f5a6b", // version 4
		"017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", // of another variant
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
		"017f22e279b07cc398c4dc0c0c07398f0000", "017f22e2_79b0_7cc3_98c4_dc0c0c07398f",
	},
	ULID: {
		"evt_1", exampleUUIDv7, exampleSnowflake, exampleULID[1:], exampleULID + "0",
		"81ARZ3NDEKTSV4RRFFQ69G5FAV",                               // more than 128 bits
		"01ARZ3NDEKTSV4RRFFQ69G5FAU", "O1ARZ3NDEKTSV4RRFFQ69G5FAV", // no digits of this base
		"01ARZ3NDEKTSV4RRFFQ69G5FA-",
	},
	Snowflake: {
		"evt_1", exampleUUIDv7, exampleULID, "0", "-1", "+1", "007", "1_000", "1e5",
		"9223372036854775808", "175928847299117063 1",
	},
}

// TestIDTimeRefusesOtherKeys: a key that is not of the Ledger's kind is an error that names the
// key, before any statement. In a batch the other keys are marked.
func TestIDTimeRefusesOtherKeys(t *testing.T) {
	for kind, keys := range otherKeys {
		m := newIDs(t, Postgres, kind)
		for _, key := range keys {
			_, err := m.entry(key, nil)
			var input *dedup.InputError
			require.ErrorAs(t, err, &input, "%v %q", kind, key)
			assert.Equal(t, "key", input.Field, "%v %q", kind, key)
			assert.Contains(t, input.Reason, "is not a "+kind.String())
		}
		db, _ := openScript(t) // any statement fails the test
		mark, err := m.Do(t.Context(), db, keys[0], nothing)
		assert.True(t, dedup.IsPermanent(err), "%v", err)
		assert.Equal(t, dedup.Unknown, mark.Outcome)
	}
	b, err := newIDs(t, Postgres, UUIDv7).batchOf([]string{"evt_1", exampleUUIDv7}, nil)
	require.NoError(t, err)
	require.Error(t, b.marks[0].Err)
	assert.Equal(t, []int{1}, b.order)
}

// TestIDTimeConfig: these configurations are refused by New.
func TestIDTimeConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		field string
		edit  func(*Config)
	}{
		"no such kind": {"IDTime", func(c *Config) { c.IDTime = Snowflake + 1 }},
		"SQLite":       {"IDTime", func(c *Config) { c.Dialect = SQLite }},
		"SQL Server":   {"IDTime", func(c *Config) { c.Dialect = dialect.SQLServer }},
		"generations":  {"IDTime", func(c *Config) { c.Retention = Generations }},
		"no epoch":     {"SnowflakeEpoch", func(c *Config) { c.IDTime = Snowflake }},
		"an epoch":     {"SnowflakeEpoch", func(c *Config) { c.SnowflakeEpoch = discordEpoch }},
		"an epoch, no kind": {"SnowflakeEpoch", func(c *Config) {
			c.IDTime, c.SnowflakeEpoch = 0, discordEpoch
		}},
	} {
		cfg := Config{Dialect: Postgres, Namespace: "n", Window: time.Hour, IDTime: UUIDv7}
		tt.edit(&cfg)
		_, err := New(cfg)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, name)
		assert.Equal(t, tt.field, input.Field, name)
	}
}

// TestPreviousConfig: these configurations are refused by New.
func TestPreviousConfig(t *testing.T) {
	old := newMarks(t, Postgres)
	after := func(p *Ledger, edit func(*Config)) (*Ledger, error) {
		cfg := Config{Dialect: Postgres, Namespace: "n", Table: "next", Window: time.Hour,
			Previous: p}
		edit(&cfg)
		return New(cfg)
	}
	next, err := after(old, func(c *Config) { c.IDTime = UUIDv7 })
	require.NoError(t, err)
	generations, err := New(Config{Dialect: Postgres, Namespace: "n", Window: time.Hour,
		Retention: Generations})
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		previous *Ledger
		edit     func(*Config)
	}{
		"not made by New":  {new(Ledger), func(*Config) {}},
		"another database": {newMarks(t, MySQL), func(*Config) {}},
		"SQLite":           {newMarks(t, SQLite), func(c *Config) { c.Dialect = SQLite }},
		"generations":      {generations, func(*Config) {}},
		"to generations":   {old, func(c *Config) { c.Retention = Generations }},
		"a chain":          {next, func(c *Config) { c.Table = "third" }},
		"the same table":   {old, func(c *Config) { c.Table = "" }},
	} {
		_, err := after(tt.previous, tt.edit)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, name)
		assert.Equal(t, "Previous", input.Field, name)
	}
}

// onRecord answers the query for the form of a table's ids.
func onRecord(m *Ledger, form any) Step {
	return Step{Query: m.dialect.ids, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{form}}
	}}
}

// TestRecordedIDTime: any Ledger can read from the table which form its ids have.
func TestRecordedIDTime(t *testing.T) {
	type answer struct {
		kind  IDTime
		epoch time.Time
	}
	for form, want := range map[string]answer{
		"digest":                        {},
		"uuidv7":                        {UUIDv7, time.Time{}},
		"ulid":                          {ULID, time.Time{}},
		"snowflake since 1420070400000": {Snowflake, discordEpoch},
		"snowflake since -1":            {Snowflake, time.UnixMilli(-1)},
	} {
		m := newIDs(t, Postgres, ULID)
		db, _ := openScript(t, onRecord(m, form))
		kind, epoch, err := m.RecordedIDTime(t.Context(), db)
		require.NoError(t, err, form)
		assert.Equal(t, want, answer{kind, epoch}, form)
	}
	for _, form := range []any{"uuidv9", "snowflake since", "snowflake since x", "", nil} {
		m := newIDs(t, Postgres, ULID)
		db, _ := openScript(t, onRecord(m, form))
		_, _, err := m.RecordedIDTime(t.Context(), db)
		require.ErrorContains(t, err, m.table.full, "%v", form)
	}
	db, _ := openScript(t) // any statement fails the test
	kind, _, err := newMarks(t, SQLite).RecordedIDTime(t.Context(), db)
	require.NoError(t, err)
	assert.Zero(t, kind)
}

// TestFirstMarkLooksAtTheForm: a Ledger reads the form of the table's ids once. If it is another
// one, the first mark fails and is rolled back.
func TestFirstMarkLooksAtTheForm(t *testing.T) {
	plain, uuids := newMarks(t, Postgres), newIDs(t, Postgres, UUIDv7)
	for name, tt := range map[string]struct {
		marks *Ledger
		asked Step
		fails string
	}{
		"the same":      {uuids, onRecord(uuids, "uuidv7"), ""},
		"digests":       {plain, onRecord(plain, "digest"), ""},
		"a plain table": {newIDs(t, Postgres, UUIDv7), onRecord(uuids, "digest"), `made for "digest"`},
		"a plain one":   {newMarks(t, Postgres), onRecord(plain, "uuidv7"), `made for "uuidv7"`},
		"another epoch": {newIDs(t, Postgres, Snowflake),
			onRecord(plain, "snowflake since 7"), `made for "snowflake since 7"`},
		"not migrated": {newIDs(t, Postgres, ULID), onRecord(plain, nil), "call Migrate"},
		"version 2": {newIDs(t, Postgres, ULID),
			Step{Query: plain.dialect.ids, Err: codeError("42703")}, "call Migrate"},
		"no right": {newIDs(t, Postgres, ULID),
			Step{Query: plain.dialect.ids, Err: codeError("42501")}, "SELECT on"},
	} {
		t.Run(name, func(t *testing.T) {
			key := map[IDTime]string{0: "k", UUIDv7: exampleUUIDv7, ULID: exampleULID,
				Snowflake: exampleSnowflake}[tt.marks.ids.kind]
			insert := Step{Query: insertText(tt.marks), Rows: func([]any) [][]sqldriver.Value {
				e, err := tt.marks.entry(key, nil)
				require.NoError(t, err)
				return [][]sqldriver.Value{{e.id[:], at(1, 1)}}
			}}
			steps := []Step{insert, tt.asked}
			if tt.fails == "" {
				steps = append(steps, insert) // the second mark does not ask again
			}
			db, s := openScript(t, steps...)
			mark, err := tt.marks.Do(t.Context(), db, key, nothing)
			if tt.fails != "" {
				require.ErrorContains(t, err, tt.fails)
				assert.False(t, mark.First())
				assert.False(t, Retryable(err) || dedup.IsPermanent(err), "%v", err)
				assert.Zero(t, s.Committed)
				return
			}
			require.NoError(t, err)
			assert.True(t, mark.First())
			_, err = tt.marks.Do(t.Context(), db, key, nothing)
			require.NoError(t, err)
			assert.Equal(t, 2, s.Committed)
		})
	}
}

// FuzzIDTime: a text is an id of at most one kind, and each byte of it changes its row.
func FuzzIDTime(f *testing.F) {
	ledgers := []*Ledger{newIDs(f, Postgres, UUIDv7), newIDs(f, Postgres, ULID),
		newIDs(f, Postgres, Snowflake)}
	for _, key := range []string{exampleUUIDv7, exampleULID, exampleSnowflake, "", "k"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		kinds := 0
		for _, m := range ledgers {
			e, err := m.entry(key, nil)
			if err != nil {
				continue
			}
			kinds++
			digest, err := driver.NewID("payments", "", key)
			require.NoError(t, err)
			require.Equal(t, digest[:12], e.id[4:])
		}
		require.LessOrEqual(t, kinds, 1, "%q", key)
	})
}
