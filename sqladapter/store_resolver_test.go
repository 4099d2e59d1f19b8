package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func askNobody(context.Context, Doubt) (dedup.Resolution, error) {
	return dedup.Resolution{}, nil
}

func TestResolverConfig(t *testing.T) {
	tests := map[string]struct {
		cfg   ResolverConfig
		field string // that is wrong
	}{
		"asks":                  {cfg: ResolverConfig{Ask: askNobody, Window: time.Hour}},
		"holds":                 {cfg: ResolverConfig{Policy: PolicyHold}},
		"reruns":                {cfg: ResolverConfig{Policy: PolicyRerun}},
		"unknown policy":        {ResolverConfig{Policy: 3}, "ResolverConfig.Policy"},
		"asks nobody":           {ResolverConfig{Window: time.Hour}, "ResolverConfig.Ask"},
		"asks without a window": {ResolverConfig{Ask: askNobody}, "ResolverConfig.Window"},
		"holds and asks": {ResolverConfig{Policy: PolicyHold, Ask: askNobody},
			"ResolverConfig.Ask"},
		"negative lease": {ResolverConfig{Policy: PolicyHold, Lease: -1},
			"ResolverConfig.Lease"},
		"negative age": {ResolverConfig{Policy: PolicyHold, AlarmAge: -1},
			"ResolverConfig.AlarmAge"},
		"wait above its bound": {ResolverConfig{Policy: PolicyHold, Wait: 2, MaxWait: 1},
			"ResolverConfig.Wait"},
		"too many asks": {ResolverConfig{Policy: PolicyHold, MaxAsks: maxAsked + 1},
			"ResolverConfig.MaxAsks"},
		"negative parallel": {ResolverConfig{Policy: PolicyHold, Parallel: -1},
			"ResolverConfig.Parallel"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewResolver(&Store{}, tt.cfg)
			wantField(t, err, tt.field)
		})
	}
	_, err := NewResolver(nil, ResolverConfig{Policy: PolicyHold})
	wantField(t, err, "store")
}

// wantField insists on an InputError about a field, or on none.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	switch {
	case field == "" && err != nil:
		t.Errorf("refused: %v", err)
	case field != "" && (!errors.As(err, &input) || input.Field != field):
		t.Errorf("%v, want an error about %s", err, field)
	}
}

func TestStoreConfig(t *testing.T) {
	db := &sql.DB{}
	tests := map[string]struct {
		cfg   StoreConfig
		field string
	}{
		"postgres":   {cfg: StoreConfig{Dialect: Postgres, Schema: "Mine", Table: "Order"}},
		"mysql":      {cfg: StoreConfig{Dialect: MySQL}},
		"sqlite":     {cfg: StoreConfig{Dialect: SQLite}},
		"no dialect": {StoreConfig{}, "Dialect"},
		"hostile table": {StoreConfig{Dialect: Postgres, Table: `x"; drop table y; --`},
			"Table"},
		"hostile schema": {StoreConfig{Dialect: MySQL, Schema: "a`b"}, "Schema"},
		"long table": {StoreConfig{Dialect: MySQL, Table: string(make([]byte, 64))},
			"Table"},
		"table of SQLite":   {StoreConfig{Dialect: SQLite, Table: "SQLite_x"}, "Table"},
		"table of versions": {StoreConfig{Dialect: SQLite, Table: "onceward_migrations"}, "Table"},
		"negative result":   {StoreConfig{Dialect: SQLite, MaxResult: -1}, "MaxResult"},
		"results too large": {StoreConfig{Dialect: SQLite, MaxResult: mostResult + 1},
			"MaxResult"},
		"results just right": {cfg: StoreConfig{Dialect: SQLite, MaxResult: mostResult}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewStore(db, tt.cfg)
			wantField(t, err, tt.field)
		})
	}
	_, err := NewStore(nil, StoreConfig{Dialect: SQLite})
	wantField(t, err, "db")
}

// TestDoubtDownstreamKey: the resolver asks the downstream by the key that the handler gave
// it.
func TestDoubtDownstreamKey(t *testing.T) {
	d, err := dedup.New(dedup.Memory(1),
		dedup.Config{Namespace: "payments", Window: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, purpose := range [][]string{nil, {"charge"}, {"charge", "eu"}, {"chargee", "u"}, {""}} {
		_, err := dedup.Do(t.Context(), d, "order 4711",
			func(ctx context.Context) (struct{}, error) {
				attempt, _ := dedup.FromContext(ctx)
				id, err := driver.NewID("payments", "", "order 4711")
				if err != nil {
					return struct{}{}, err
				}
				doubt := Doubt{ID: id}
				if got, want := doubt.DownstreamKey(purpose...),
					attempt.DownstreamKey(purpose...); got != want {
					t.Errorf("for %q the resolver has %s, the handler had %s", purpose, got, want)
				}
				return struct{}{}, errors.New("again")
			})
		if err == nil || errors.Is(err, dedup.ErrUnknown) {
			t.Fatal(err)
		}
	}
}

// TestResolverWait: the pause before a key is asked about again grows, and is the same at
// every look, whoever looks.
func TestResolverWait(t *testing.T) {
	cfg := ResolverConfig{Policy: PolicyHold, Wait: time.Second, MaxWait: time.Minute}
	a, err := NewResolver(&Store{}, cfg)
	b, err2 := NewResolver(&Store{}, cfg)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	pauses := map[time.Duration]bool{}
	for n := range 50 {
		id := driver.ID{byte(n)}
		for asked, top := 1, time.Second; asked < 12; asked, top = asked+1,
			min(2*top, time.Minute) {
			pause := a.wait(id, asked)
			if pause < top/2 || pause > top {
				t.Errorf("after %d asks the pause is %v, want from %v to %v", asked, pause,
					top/2, top)
			}
			if again := b.wait(id, asked); again != pause {
				t.Errorf("after %d asks the pause is %v here and %v there", asked, pause, again)
			}
			pauses[pause] = true
		}
	}
	if len(pauses) < 300 {
		t.Errorf("%d different pauses of 550: they are in step", len(pauses))
	}
}
