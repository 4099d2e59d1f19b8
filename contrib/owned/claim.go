package owned

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// atOnce bounds the items that are sent in one batch write.
const atOnce = script.MaxMembers

// These errors are the reasons why a claim is not granted although its key was proven new.
var (
	// errLate: the partition's lease might end before the lease of the claim. The key stays begun,
	// as a suspect that nobody ran.
	errLate = errors.New("owned: the begin was answered too late for its lease")
	// errUnderWay: another call here is sending the same claim.
	errUnderWay = errors.New("owned: the same claim is under way")
	// errRemoteOwner: the partition was lost.
	errRemoteOwner = errors.New("owned: the partition is held elsewhere")
	// errShared: other owners may have begun keys of the partition.
	errShared = errors.New("owned: the partition is shared")
)

// claimPath is the way in which a request is answered.
type claimPath uint8

const (
	answered claimPath = iota // it has its answer
	proven                    // New: a begin is enough
	resent                    // New, and an earlier send of the same claim was not answered
	perhaps                   // the sets are asked first
	ordinary                  // the inner store is asked
	left                      // OnlyNew has met an attempt: a lookup in the inner store
)

// claiming is one call of Claim, for one or several partitions.
type claiming struct {
	s     *Store
	ctx   context.Context
	now   time.Duration // when it began
	sort  byShard
	items []item
	parts []*part
	of    map[*Ownership]*part // the same, if there are many
	group []int32              // the items of each part, one part after the other
	slab  []entry              // for new entries

	met     bool // an item has met an entry that another attempt keeps
	queries []bloom.Query
	asked   []int32 // the item of each query
}

// item is one request under way.
type item struct {
	req  *driver.ClaimRequest
	ans  *driver.Answer
	part *part
	// made for the item, or found; nil if an entry is made only when the inner store grants the
	// claim
	e      *entry
	met    *entry // the entry of another attempt, which the item has met; then it makes none
	member int64
	way    claimPath
	place  int32 // in its part's begin
	listed bool  // e is in the table
	todo   int32 // one more than its index among those that go to the inner store
	found  script.IDState
	runs   int
	lookup lookup
	back   driver.State // the state that ends the claim of the inner store
	saved  int          // as an observer is told
	over   bool         // it is answered, and the observer must be told
	why    bloom.Reason
	says   bloom.Answer
}

var claimings = sync.Pool{New: func() any { return new(claiming) }}

// Claim implements [driver.Store].
func (s *Store) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	_, claimed := s.FinishClaim(ctx, nil, reqs)
	return claimed
}

// plan finds the partition of each request, and answers the requests that have none.
func (c *claiming) plan(reqs []driver.ClaimRequest, answers []driver.Answer) {
	c.items = resize(c.items, len(reqs))
	var last *part
	var of *driver.Origin
	n := 0
	for i := range reqs {
		r := &reqs[i]
		if of == nil || of.Partition != r.Origin.Partition || of.Source != r.Origin.Source ||
			of.SourceDigest != r.Origin.SourceDigest {
			var err error
			if last, err = c.partOf(&r.Origin); err != nil {
				answers[i], of = refusal(err, c.s.opts.Lease), nil
				continue
			}
			of = &r.Origin
		}
		if err := c.s.check(r); err != nil {
			answers[i].Err = err
			continue
		}
		c.items[n] = item{req: r, ans: &answers[i], part: last, member: c.s.members.of(&r.ID)}
		n++
	}
	c.items = c.items[:n]
	c.grouped()
}

// grouped sets the items of each part.
func (c *claiming) grouped() {
	c.group = resize(c.group, len(c.items))
	for i := range c.items {
		c.items[i].part.n++
	}
	at := 0
	for _, p := range c.parts {
		p.items = c.group[at : at : at+p.n]
		at += p.n
	}
	for i := range c.items {
		p := c.items[i].part
		p.items = append(p.items, int32(i)) // the index of an item
	}
}

// refusal answers a request whose partition is not held. If the partition was lost, somebody else
// has it. If it was never acquired, the caller has made a mistake.
func refusal(err error, lease time.Duration) driver.Answer {
	if errors.Is(err, errRemoteOwner) {
		return remoteOwnerAnswer(lease)
	}
	return driver.Answer{Err: err}
}

// remoteOwnerAnswer returns InFlight and never Unknown: with FailOpen, Unknown would run the effect
// while the owner runs it, too.
func remoteOwnerAnswer(lease time.Duration) driver.Answer {
	return driver.Answer{Outcome: driver.InFlight,
		Record: driver.Record{State: driver.StateInProgress, Attempt: 1, Remaining: lease}}
}

// check refuses a request that does not fit the window that all keys share or the partition's
// lease, or that asks for what this store does not keep.
func (s *Store) check(r *driver.ClaimRequest) error {
	switch {
	case leaseRequests*r.Lease > s.opts.Lease:
		return input("Lease",
			fmt.Sprintf("is %v; the partition's, Options.Lease, is %v and must be three times as long", r.Lease, s.opts.Lease))
	case r.Hold > s.opts.Hold:
		return input("Hold", fmt.Sprintf("is %v; this store has Options.Hold for all keys, %v",
			r.Hold, s.opts.Hold))
	case r.Window != 0 && script.Millis(r.Window) != script.Millis(s.opts.Window):
		return input("Window", fmt.Sprintf("is %v; this store has Options.Window for all keys, %v",
			r.Window, s.opts.Window))
	case r.ResultLimit != 0:
		return input("ResultLimit",
			fmt.Sprintf("is %d; this store keeps neither results nor failures", r.ResultLimit))
	case r.Fingerprint != (driver.Fingerprint{}):
		return input("Fingerprint", "is set; this store keeps none")
	}
	return nil
}

// enter makes the entries, each under its shard's mutex, and only then asks the filter. So the
// second of two callers either finds the first one's entry, or comes after that entry has gone and
// sees the bits in the filter.
func (c *claiming) enter() {
	s := c.s
	c.sort.sort(len(c.items), func(i int) uint64 { return s.table.hash(&c.items[i].req.ID) })
	c.slab = make([]entry, len(c.items))
	c.sort.each(s.table, c.meet)
	if c.met {
		c.feed()
	}
	if s.between != nil {
		s.between()
	}
	begins := false
	for _, p := range c.parts {
		begins = c.filter(p) || begins
	}
	if begins {
		c.sort.each(s.table, c.commit)
	}
}

// feed feeds the keys that have found an entry, and so made none, to the filter. Then it looks
// whether that entry is still there. The entry may be of another source, whose keys this filter
// does not know. Once the entry is gone, only the bits in this filter keep others from finding the
// key new, until the inner store has the key.
func (c *claiming) feed() {
	if c.s.met != nil {
		c.s.met()
	}
	for i := range c.items {
		if it := &c.items[i]; it.met != nil {
			o := it.part.o
			o.mu.Lock()
			gen := o.gen
			o.mu.Unlock()
			o.add(gen, it.member, nil)
		}
	}
	c.sort.each(c.s.table, func(sh *shard, i int) {
		it := &c.items[i]
		if it.met != nil && it.met.state == gone {
			it.e, it.listed, it.runs = nil, false, 0
			c.meet(sh, i) // whatever it meets now, its bits are there
		}
	})
}

// filter asks a partition's filter about the keys that have a new entry, and reports whether any
// key begins.
func (c *claiming) filter(p *part) bool {
	c.queries, c.asked = c.queries[:0], c.asked[:0]
	for _, i := range p.items {
		if it := &c.items[i]; it.way == perhaps && it.lookup.in == 0 {
			c.queries = append(c.queries, bloom.Query{ID: filterKey(it.member)})
			c.asked = append(c.asked, i)
		}
	}
	if len(c.asked) == 0 {
		return false
	}
	oldest := p.o.filter.WhereAll(c.queries)
	p.room = p.o.reserve(c.proven())
	for n, i := range c.asked {
		c.judge(&c.items[i], oldest, &c.queries[n])
	}
	p.o.inFlight.Add(int64(p.news - p.room))
	if p.news > 0 {
		p.begin.fill(p.news)
		p.begin.entries = make([]*entry, p.news)
	}
	return p.news > 0
}

// proven returns how many keys the filter has proven new.
func (c *claiming) proven() (n int) {
	for i := range c.queries {
		if c.queries[i].Answer == bloom.ProvenNew {
			n++
		}
	}
	return n
}

// commit shows in the table that a key begins without the inner store. The shard's mutex is held.
func (c *claiming) commit(_ *shard, i int) {
	it := &c.items[i]
	switch {
	case it.way != proven:
	case it.e.state == asking:
		it.e.state, it.e.batch, it.e.place = begun, it.part.begin, it.place
		it.part.begin.entries[it.place] = it.e
	default: // its lease has lapsed meanwhile, and another attempt has the key
		it.way = answered
		it.part.giveUp(it.place)
		*it.ans = remoteOwnerAnswer(it.req.Lease)
	}
}

// meet decides how to answer one request, by the entry that its key has. The shard's mutex is held.
func (c *claiming) meet(sh *shard, i int) {
	it := &c.items[i]
	hash := c.sort.hashes[i]
	e := sh.live(hash, &it.req.ID, c.now)
	switch {
	case e == nil:
		c.list(sh, it, hash)
	case e.state == ended && e.end != passed:
		sh.drop(e)
		c.list(sh, it, hash)
	case e.state == ended:
		// the inner store knows how it ended; only a claim that it grants replaces the entry
		it.way, it.runs = ordinary, it.part.o.runs(it.member)
		it.met, c.met = e, true
	case e.token == it.req.Token:
		c.again(it, e)
	case e.state == claimed:
		it.way, it.runs = ordinary, e.runs
		it.met, c.met = e, true
	default:
		c.against(sh, it, e)
	}
}

// list puts a new entry into the table.
func (c *claiming) list(sh *shard, it *item, hash uint64) {
	it.e, it.listed, it.way = c.entry(it, hash), true, perhaps
	sh.put(it.e)
}

// entry makes an entry.
func (c *claiming) entry(it *item, hash uint64) *entry {
	if len(c.slab) == 0 {
		c.slab = make([]entry, 1)
	}
	e := &c.slab[0]
	c.slab = c.slab[1:]
	e.id, e.token, e.hash, e.o = it.req.ID, it.req.Token, hash, it.part.o
	e.origin = origin{offset: it.req.Origin.Offset, generation: it.req.Origin.Generation}
	e.member, e.attempt = it.member, 1
	e.until, e.hold = c.now+it.req.Lease, it.req.Hold
	return e
}

// again answers a claim that its caller sends again.
func (c *claiming) again(it *item, e *entry) {
	it.e, it.listed = e, true
	switch {
	case e.state == begun && e.batch.fence.Load() != 0:
		*it.ans = driver.Answer{Outcome: driver.Acquired, Mine: true, Record: e.record(c.now)}
	case e.state == begun && !e.batch.ready.Load():
		it.ans.Err = errUnderWay
	case e.state == begun:
		it.way = resent
		it.part.resend(e.batch, it.req.Lease)
	case e.state == asking:
		it.way = perhaps
		it.lookup = lookup{member: it.member, in: anywhere}
	default:
		it.way, it.runs = ordinary, e.runs
		it.met, c.met = e, true
	}
}

// against decides how to answer a claim if another attempt of this process began the key without
// the inner store, or is beginning it.
func (c *claiming) against(sh *shard, it *item, e *entry) {
	rec := e.record(c.now)
	over := e.outranked(it)
	switch {
	case rec.Remaining > 0 && !over:
		*it.ans = driver.Answer{Outcome: driver.InFlight, Record: rec}
	case it.req.OnlyNew && e.state == begun:
		rec.Remaining = min(rec.Remaining, 0)
		*it.ans = driver.Answer{Outcome: driver.InFlight, Record: rec}
	default:
		sh.drop(e)
		e.suspected()
		c.list(sh, it, e.hash)
	}
}

// outranked reports whether a request may take the key over from an older generation of its
// partition.
func (e *entry) outranked(it *item) bool {
	return it.req.TakeOverOlderGeneration && e.o.part.place() == it.part.o.part.place() &&
		e.origin.generation > 0 && e.origin.generation < it.req.Origin.Generation
}

// record returns what the table knows of the key.
func (e *entry) record(now time.Duration) driver.Record {
	return driver.Record{
		State: driver.StateInProgress, Attempt: e.attempt, Fence: e.shown(),
		Remaining: e.until - now,
		Origin: driver.Origin{
			SourceDigest: e.o.part.place().source, Partition: e.o.part.Number,
			Offset: e.origin.offset, Generation: e.origin.generation,
		},
	}
}

// judge decides the path of a request whose key no attempt of this process has.
func (c *claiming) judge(it *item, oldest int64, q *bloom.Query) {
	it.lookup = lookup{member: it.member, oldest: oldest, in: q.In}
	it.says, it.why = q.Answer, q.Reason
	if it.says == bloom.Unknown {
		it.lookup.in = anywhere
	}
	if it.runs = it.part.o.runs(it.member); it.runs > 0 {
		if it.says == bloom.ProvenNew {
			it.way = ordinary // begun, and not marked
		}
		return
	}
	if it.says != bloom.ProvenNew {
		return
	}
	it.way = ordinary
	if it.part.shared {
		it.says, it.why = bloom.Unknown, bloom.Shared
		return
	}
	if p := it.part; p.room > p.news {
		if p.begin == nil {
			p.begin = p.o.newBegin()
			p.sending = append(p.sending, p.begin)
		}
		p.lease = max(p.lease, it.req.Lease)
		it.way, it.place = proven, int32(p.news) // the index of an item
		p.news++
	}
}

// send begins the new keys, and looks in the sets for the keys that may be known, in one round trip
// for all partitions. The same batch writes mark finished keys.
func (c *claiming) send() {
	var turns []*batchWrite
	var asks []*ask
	for _, p := range c.parts {
		p.prepare(c)
		if !p.write.empty() {
			turns = append(turns, &p.write)
		}
	}
	for i := range c.items {
		if it := &c.items[i]; it.way == perhaps {
			it.part.ask.items = append(it.part.ask.items, it.lookup)
			it.part.asked = append(it.part.asked, it)
		}
	}
	for _, p := range c.parts {
		if len(p.asked) > 0 {
			asks = append(asks, &p.ask)
		}
	}
	if len(turns)+len(asks) > 0 {
		c.s.roundTrip(c.ctx, turns, asks)
	}
}
