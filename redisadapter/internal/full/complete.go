package full

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// ownsAtOnce bounds the keys of one complete.lua: Redis does nothing else while it runs.
const ownsAtOnce = 64

// shortly reports whether a change may end its claim by complete.lua. That script overwrites only
// the change's own claim, and only with what finish.lua would write. If it finds anything else, the
// change goes to finish.lua.
func shortly(c *driver.Finish, at wire.Reading) bool {
	return at.Known() &&
		(c.State == driver.StateSucceeded || c.State == driver.StateFailed) &&
		c.Fence != 0 && c.Fence <= redisscript.MaxFence
}

// endRecord returns what the change's own claim becomes.
func endRecord(c *driver.Finish, at wire.Reading) wire.Record {
	r := wire.DoneRecord(c, at)
	r.Result = c.Result
	if c.State == driver.StateFailed {
		r.State = redisscript.Failed
	}
	return r
}

// owns are the keys of one complete.lua.
type owns struct {
	items    []redisscript.CompleteItem
	keep     time.Duration
	sections int
	script   *script
}

// completes builds the scripts of the steps that share one.
func (t *exchange) completes(round []step) {
	b := t.ownTexts(round)
	if b == nil {
		return
	}
	limit := ownsAtOnce
	if !t.OneServer() || t.l.slotted.Load() {
		limit = 1
	}
	var all owns
	for i := range round {
		st := &round[i]
		if st.kind != own {
			continue
		}
		c := &t.Changes[st.item]
		if sections := sectionsOf(c); len(all.items) == 0 || len(all.items) == limit ||
			all.keep != c.Window || all.sections != sections {
			all.close()
			all = owns{keep: c.Window, sections: sections, script: new(script)}
		}
		st.script, st.nth = all.script, len(all.items)
		all.items = append(all.items,
			redisscript.CompleteItem{Key: b.Take(), Token: b.Take(), Record: b.Take()})
	}
	all.close()
}

// close makes the call.
func (o *owns) close() {
	if len(o.items) > 0 {
		o.script.call = redisscript.NewComplete(o.items, o.keep, o.sections)
	}
}

// ownTexts writes the arguments of the steps that share a script, or returns nil.
func (t *exchange) ownTexts(round []step) *wire.Commands {
	n := 0
	for i := range round {
		if round[i].kind == own {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	b := wire.NewCommands(n)
	for i := range round {
		if round[i].kind == own {
			c := &t.Changes[round[i].item]
			b.Key(t.l.prefix, c.ID)
			b.Token(c.Token)
			rec := endRecord(c, t.At)
			b.Value(&rec)
		}
	}
	b.Freeze(0)
	return b
}

// sectionsOf returns the argument of complete.lua.
func sectionsOf(c *driver.Finish) int {
	flags := wire.Flagged(c.Fingerprint != driver.Fingerprint{}, wire.FlagFingerprint) |
		wire.Flagged(c.Origin != driver.Origin{}, wire.FlagOrigin) |
		wire.Flagged(c.Label != "", wire.FlagLabel)
	return int(flags / wire.FlagFingerprint)
}

// readSwap reads the reply to SET IFEQ. When the key no longer holds the claim as it was written, a
// script decides.
func (t *exchange) readSwap(st *step) {
	c := &t.Changes[st.item]
	_, absent, err := wire.ValueOf(st.cmd)
	switch {
	case absent, wire.Classify(err) == wire.ClassFull, wire.Classify(err) == wire.ClassUnreadable:
		t.endByScript(st.item)
	case redis.HasErrorPrefix(err, "syntax error"): // an older server has taken over
		t.l.compares.Store(false)
		t.endByScript(st.item)
	case err != nil:
		t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", err)}
	default:
		t.Ended[st.item] = ownEnd(c)
	}
}

// ownEnd answers a change that has ended its own claim.
func ownEnd(c *driver.Finish) driver.Answer {
	rec := wire.DoneView(c)
	rec.State, rec.Result = c.State, wire.CloneResult(c)
	return driver.Answer{Held: true, Written: true, Record: rec}
}

// readOwn reads the reply to a complete.lua.
func (t *exchange) readOwn(st *step) {
	c, r := &t.Changes[st.item], &st.script.reply
	switch {
	case redis.HasErrorPrefix(r.Err, "CROSSSLOT"): // behind a proxy that shards
		t.l.slotted.Store(true)
		t.endByScript(st.item)
	case r.Err != nil:
		t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", r.Err)}
	case r.Answer != "completed" || st.nth >= len(r.Record):
		t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", wire.Unexpected(*r))}
	case r.Record[st.nth] != '1':
		t.endByScript(st.item)
	default:
		t.Ended[st.item] = ownEnd(c)
	}
}
