package outbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// backlogOf runs during while shard 7 holds five messages of a topic that fails, with the ids 100
// to 500, and nothing else.
func backlogOf(t *testing.T, edit func(*fake), during func(*troubled, *fake)) []error {
	t.Helper()
	p := &troubled{trouble: down}
	return relayOf(t, p, of("bad", 5), func(_ *RelayConfig, f *fake) {
		f.slow["lock"] = time.Millisecond
		for i, r := range f.rows {
			r.id, r.shard = int64(100*(i+1)), 7
		}
		if edit != nil {
			edit(f)
		}
	}, func(_ *Relay, f *fake) { during(p, f) })
}

// put commits a healthy message of shard 7.
func (f *fake) put(id int64, name, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, &fakeRow{
		Message: Message{ID: name, Topic: "good", Key: []byte(key)}, id: id, shard: 7,
	})
}

// reads waits for d, and returns the ids behind which the reads in that time began.
func (f *fake) reads(d time.Duration) []int64 {
	f.mu.Lock()
	f.lows = nil
	f.mu.Unlock()
	after(d)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lows
}

// publishing adds a healthy message, which must be published, and returns the reads meanwhile.
func (f *fake) publishing(t *testing.T, p *troubled, id int64, name string) []int64 {
	t.Helper()
	f.put(id, name, name)
	lows := f.reads(wholeLook)
	assert.Contains(t, p.got(), name)
	require.NotEmpty(t, lows)
	return lows
}

func (f *fake) set(edit func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit()
}

// A message behind the backlog of a failing topic costs no more than without it: when all
// transactions that inserted before have ended, the shard is not read from the beginning.
func TestBacklogIsNotReadForAMessageBehindIt(t *testing.T) {
	backlogOf(t, nil, func(p *troubled, f *fake) {
		after(time.Second)
		for _, low := range f.publishing(t, p, 600, "one") {
			assert.EqualValues(t, 500, low)
		}
		for _, low := range f.publishing(t, p, 700, "two") {
			assert.GreaterOrEqual(t, low, int64(500))
		}
	})
}

// A shard that holds only a final backlog is not looked at every two seconds. Later messages of the
// failing topic are passed, too.
func TestFinalBacklogIsNotLookedAt(t *testing.T) {
	backlogOf(t, nil, func(p *troubled, f *fake) {
		after(time.Second)
		asked := f.ran("top")
		after(finalFor / 2)
		assert.Equal(t, asked, f.ran("top"))
		f.set(func() {
			m := of("bad", 6)[5]
			f.rows = append(f.rows, &fakeRow{Message: m, id: 600, shard: 7})
		})
		after(3 * wholeLook)
		for _, low := range f.publishing(t, p, 700, "one") {
			assert.GreaterOrEqual(t, low, int64(600))
		}
	})
}

// The shard is read from the beginning for as long as a transaction may commit a smaller id. A
// transaction that has begun later does not count.
func TestBacklogIsReadWhileWritersMayCommitBeforeIt(t *testing.T) {
	backlogOf(t, func(f *fake) { f.writers = "3/7 4/1" }, func(p *troubled, f *fake) {
		after(time.Minute)
		assert.Contains(t, f.publishing(t, p, 600, "one"), int64(0))
		f.set(func() { f.writers = "4/1 5/5" })
		after(time.Minute)
		assert.Contains(t, f.publishing(t, p, 700, "two"), int64(0))
		f.set(func() { f.writers = "4/2 5/5" })
		after(2 * wholeLook)
		assert.NotContains(t, f.publishing(t, p, 800, "three"), int64(0))
	})
}

// A prepared transaction may be one of those that inserted before: its name has changed.
func TestBacklogIsReadWhileATransactionIsPrepared(t *testing.T) {
	backlogOf(t, func(f *fake) { f.writers = "3/7" }, func(p *troubled, f *fake) {
		after(time.Minute)
		f.set(func() { f.writers = prepared })
		after(20 * time.Second) // less than finalFor, after which each shard is read anyway
		assert.Contains(t, f.publishing(t, p, 600, "one"), int64(0))
		f.set(func() { f.writers = "" })
		after(2 * wholeLook)
		assert.NotContains(t, f.publishing(t, p, 700, "two"), int64(0))
	})
}

// A database that does not say who inserts, or not to this user, is asked rarely. The relay reports
// nothing about that.
func TestDatabaseDoesNotTellWhoInserts(t *testing.T) {
	for name, edit := range map[string]func(*fake){
		"forbidden": func(f *fake) {
			f.fail = func(statement string) error {
				if statement == "writers" {
					return errBroken
				}
				return nil
			}
		},
		"no proof": func(f *fake) { f.blind = true },
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range backlogOf(t, edit, func(p *troubled, f *fake) {
				after(time.Minute)
				assert.Contains(t, f.publishing(t, p, 600, "one"), int64(0))
				assert.LessOrEqual(t, f.ran("writers"), 3)
			}) {
				assert.ErrorIs(t, err, errBroken)
				assert.NotEmpty(t, topicErrors([]error{err}))
			}
		})
	}
}

// Another server, and one that has crashed, may give out ids again that were final before. Nothing
// is final there until that server itself has said so.
func TestNothingIsFinalOnAnotherServer(t *testing.T) {
	for name, change := range map[string]func(*fake){
		"taken over": func(f *fake) { f.server = 2 },
		"crashed": func(f *fake) {
			failed := false
			f.fail = func(statement string) error {
				if statement == "busy" && !failed {
					failed = true
					return errBroken
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			backlogOf(t, nil, func(p *troubled, f *fake) {
				after(time.Second)
				assert.NotContains(t, f.publishing(t, p, 600, "one"), int64(0))
				f.set(func() {
					change(f)
					f.writers = "1/1"
				})
				after(2 * wholeLook)
				assert.Contains(t, f.publishing(t, p, 700, "two"), int64(0))
				f.set(func() { f.writers = "" })
				after(2 * wholeLook)
				assert.NotContains(t, f.publishing(t, p, 800, "three"), int64(0))
			})
		})
	}
}

// A message whose topic was changed by an UPDATE is found, too.
func TestBacklogIsReadNowAndThen(t *testing.T) {
	backlogOf(t, nil, func(p *troubled, f *fake) {
		after(time.Second)
		assert.NotContains(t, f.publishing(t, p, 600, "one"), int64(0))
		f.set(func() { f.rows[2].Topic = "good" }) // somebody has renamed the topic
		after(finalFor + 2*wholeLook)
		assert.Contains(t, p.got(), "bad2/0")
		assert.NotContains(t, f.publishing(t, p, 700, "two"), int64(0), "and not all the time")
	})
}

// A table that was emptied between two failures of a topic may give out ids again: no id that was
// final in the first failure is final in the second.
func TestNothingIsFinalFromAnEarlierFailure(t *testing.T) {
	backlogOf(t, nil, func(p *troubled, f *fake) {
		after(time.Second)
		assert.NotContains(t, f.publishing(t, p, 600, "one"), int64(0))
		p.set(nil)
		after(2 * DefaultRetryMax)
		pending, _ := f.left()
		require.Empty(t, pending)
		p.set(down)
		f.set(func() {
			f.writers = "3/7"
			for i, m := range of("bad", 5) {
				f.rows = append(f.rows, &fakeRow{Message: m, id: int64(i + 1), shard: 7})
			}
		})
		after(5 * time.Second) // less than finalFor, after which each shard is read anyway
		assert.Contains(t, f.publishing(t, p, 600, "two"), int64(0))
	})
}

// When a job is made, it may begin behind an id up to which there was nothing to read. If it has
// waited, it must not skip messages that are to be read now: those of a topic that has come back,
// or those on another server.
func TestJobThatHasWaited(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Relay, *locked)
		first  int64
	}{
		{"nothing has changed", func(*Relay, *locked) {}, 6},
		{"a topic has come back", func(r *Relay, _ *locked) {
			r.topics.succeeded("bad", 0)
		}, 1},
		{"another server", func(_ *Relay, l *locked) { l.server = 2 }, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutbox(t, Postgres)
				f, db := openFake(t, o, append(of("bad", 3), of("good", 4)...)...)
				for _, r := range f.rows {
					r.shard = 7
				}
				r, err := NewRelay(RelayConfig{Outbox: o, DB: db, Publisher: &sender{},
					OnPark: func(context.Context, Parked) {}})
				require.NoError(t, err)
				for _, topic := range []string{"bad", "other"} {
					r.topics.failed(topic, 7, errBroken)
				}
				epoch, _ := r.topics.now()
				l := &locked{reader: db, ctx: t.Context(), server: 1}
				tt.change(r, l)
				p := &plan{}
				s := &session{Relay: r}
				first, err := s.batches(l, job{shard: 7, low: 5, final: 5, epoch: epoch, server: 1},
					&shard{limit: 10}, p, &outcome{})
				require.NoError(t, err)
				assert.Equal(t, tt.first, first)
			})
		})
	}
}

// A look that began before the last writer had ended may not have seen what that writer committed.
func TestFinalityOfALook(t *testing.T) {
	now := time.Now()
	f := finality{server: 1}
	f.saw(writers{top: 10, server: 1, open: []string{"3/7"}}, now, now)
	assert.Zero(t, f.of(look{at: now.Add(time.Second), server: 1}))
	f.saw(writers{top: 20, server: 1, open: []string{"3/8"}}, now, now.Add(time.Minute))
	assert.Zero(t, f.of(look{at: now.Add(time.Second), server: 1}), "an earlier look")
	assert.Zero(t, f.of(look{at: now.Add(time.Hour), server: 2}), "a look at another server")
	assert.EqualValues(t, 10, f.of(look{at: now.Add(time.Hour), server: 1}), "not 20: see 3/8")
	f.saw(writers{top: 5, server: 1}, now, now.Add(2*time.Minute))
	assert.EqualValues(t, 5, f.of(look{at: now.Add(time.Hour), server: 1}), "ids may count anew")
}
