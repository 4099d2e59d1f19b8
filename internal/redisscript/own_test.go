package redisscript_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
)

// Generations of a test are so long that none ends while it runs.
const (
	ownSlice = 1000 * time.Hour
	ownKeep  = 4000 * time.Hour
	ownLease = time.Hour
	ownHold  = 24 * time.Hour
)

// part is a partition of a test, and one who owns it.
type part struct {
	t      *testing.T
	client redis.UniversalClient
	runner *redisscript.Runner
	keys   redisscript.OwnKeys
	self   redisscript.OwnSelf
	g      int64 // by the server's clock
}

// newPart has keys of its own, and nothing in them.
func newPart(t *testing.T, b redistest.Backend, name string) *part {
	p := b.Prefix + ":{" + name + "}:"
	return &part{
		t: t, client: b.Client, runner: redisscript.NewRunner(b.Client),
		keys: redisscript.OwnKeys{Head: p + "head", Own: p + "own", Run: p + "run"},
		self: redisscript.OwnSelf{Token: owner{1}, MapVersion: 1, Lease: ownLease, Slice: ownSlice, Keep: ownKeep},
	}
}

// held is a partition that was born and acquired.
func held(t *testing.T, b redistest.Backend, name string) *part {
	t.Helper()
	p := newPart(t, b, name)
	born := p.want(redisscript.OwnMapped, redisscript.NewOwnRemap(p.keys, redisscript.OwnRemap{MapVersion: 1, Bear: true}))
	p.g = int64(born.Now / ownSlice)
	p.acquire()
	return p
}

func (p *part) call(c redisscript.Call) redisscript.OwnReply {
	p.t.Helper()
	r := p.runner.RunOwn(p.t.Context(), []redisscript.Call{c})[0]
	if r.Err != nil {
		p.t.Fatalf("error: %v", r.Err)
	}
	return r
}

func (p *part) want(answer string, c redisscript.Call) redisscript.OwnReply {
	p.t.Helper()
	r := p.call(c)
	if r.Answer != answer {
		p.t.Fatalf("answered %+v, want %q", r, answer)
	}
	return r
}

func (p *part) acquire() redisscript.OwnReply {
	p.t.Helper()
	r := p.want(redisscript.OwnAcquired, redisscript.NewOwnAcquire(p.keys, p.self, redisscript.OwnClaim{Hold: ownHold}))
	p.self.Epoch, p.self.Seq = r.Epoch, r.Seq
	return r
}

// fresh and bucket are the keys of sets of the newest generation.
func (p *part) fresh(n int) string  { return p.set("f", p.g, n) }
func (p *part) bucket(i int) string { return p.set("b", p.g, i) }

func (p *part) set(kind string, g int64, n int) string {
	return fmt.Sprintf("%s:%s:%d:%d", p.keys.Head, kind, g, n)
}

// turn is one of the newest generation, into fresh set n.
func (p *part) turn(n int, marks, touches []int64) *redisscript.OwnTurn {
	return &redisscript.OwnTurn{Fresh: p.fresh(n), Gen: p.g, N: uint64(n), Marks: marks, Touches: touches}
}

func (p *part) mark(n int, ids ...int64) {
	p.t.Helper()
	p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, p.turn(n, ids, nil)))
}

// begin puts a batch on record and returns its field.
func (p *part) begin(n uint64, ids ...int64) string {
	p.t.Helper()
	f := redisscript.OwnField{Name: redisscript.OwnFieldName(p.self.Epoch, n), Blob: redisscript.OwnBlob(ids...)}
	p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{Begin: []redisscript.OwnField{f}}))
	return f.Name
}

// lapse ends the lease.
func (p *part) lapse() { p.must(p.client.Del(p.t.Context(), p.keys.Own).Err()) }

func (p *part) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// head is what head holds.
func (p *part) head() *redisscript.OwnState {
	p.t.Helper()
	h, err := redisscript.ReadOwnHead(p.client.HGetAll(p.t.Context(), p.keys.Head).Val())
	p.must(err)
	return h
}

// poke writes fields of head past the scripts.
func (p *part) poke(fields ...any) {
	p.must(p.client.HSet(p.t.Context(), p.keys.Head, fields...).Err())
}

// begun is what run holds: the ids of each field.
func (p *part) begun() map[string][]int64 {
	p.t.Helper()
	all, err := redisscript.ReadOwnRun(p.client.HGetAll(p.t.Context(), p.keys.Run).Val())
	p.must(err)
	ids := make(map[string][]int64)
	for _, b := range all {
		ids[b.Name] = b.IDs
	}
	return ids
}

// members are those of a set, in order.
func (p *part) members(key string) []int64 {
	p.t.Helper()
	var all []int64
	for _, s := range p.client.SMembers(p.t.Context(), key).Val() {
		m, err := strconv.ParseInt(s, 10, 64)
		p.must(err)
		all = append(all, m)
	}
	slices.Sort(all)
	return all
}

func (p *part) wantMembers(key string, want ...int64) {
	p.t.Helper()
	if got := p.members(key); !slices.Equal(got, want) {
		p.t.Errorf("%s has %v, want %v", key, got, want)
	}
}

// lease is what the lease has left.
func (p *part) lease() time.Duration { return p.client.PTTL(p.t.Context(), p.keys.Own).Val() }

// shorten makes the lease so short that a renewal is seen.
func (p *part) shorten() {
	p.must(p.client.PExpire(p.t.Context(), p.keys.Own, ownLease/2).Err())
}

func (p *part) renewed() bool { return p.lease() > ownLease/2 }

// dump is all there is in some keys, but for what expires when.
func (p *part) dump(sets ...string) string {
	ctx := p.t.Context()
	out := fmt.Sprint(p.client.HGetAll(ctx, p.keys.Head).Val(), p.client.HGetAll(ctx, p.keys.Run).Val(), p.client.Get(ctx, p.keys.Own).Val())
	for _, key := range sets {
		out += fmt.Sprint(" ", p.members(key))
	}
	return out
}

// unchanged reports an error when f changes anything.
func (p *part) unchanged(f func(), sets ...string) {
	p.t.Helper()
	before := p.dump(sets...)
	f()
	if after := p.dump(sets...); after != before {
		p.t.Errorf("was\n%s\nis\n%s", before, after)
	}
}

// eachOwn runs a story on every kind of Redis.
func eachOwn(t *testing.T, story func(t *testing.T, b redistest.Backend)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) { story(t, b) })
}

func TestOwnAcquire(t *testing.T) {
	claim := redisscript.OwnClaim{Hold: ownHold, Generation: 5, TakeOver: true}
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part)
			claim   redisscript.OwnClaim
			want    string
		}{
			"no head":                 {func(p *part) { p.must(p.client.Del(t.Context(), p.keys.Head).Err()) }, claim, redisscript.OwnAmnesia},
			"lost":                    {func(p *part) { p.remap(redisscript.OwnRemap{Lost: true}) }, claim, redisscript.OwnAmnesia},
			"lost, nobody there":      {func(p *part) { p.lapse(); p.remap(redisscript.OwnRemap{Lost: true}) }, claim, redisscript.OwnAmnesia},
			"a later map":             {func(p *part) { p.remap(redisscript.OwnRemap{MapVersion: 2}) }, claim, redisscript.OwnRemapped},
			"a later map, ours":       {func(p *part) { p.self.Token = owner{1}; p.remap(redisscript.OwnRemap{MapVersion: 2}) }, claim, redisscript.OwnRemapped},
			"an older map":            {func(p *part) { p.self.MapVersion = 2 }, claim, redisscript.OwnRemapped},
			"ours":                    {func(p *part) { p.self.Token = owner{1} }, claim, redisscript.OwnMine},
			"free":                    {(*part).lapse, claim, redisscript.OwnAcquired},
			"free, lower generation":  {func(p *part) { p.poke("generation", 9); p.lapse() }, claim, redisscript.OwnAcquired},
			"live":                    {func(p *part) { p.poke("generation", 4) }, redisscript.OwnClaim{Hold: ownHold, Generation: 5}, redisscript.OwnHeld},
			"live, lower generation":  {func(p *part) { p.poke("generation", 4) }, claim, redisscript.OwnAcquired},
			"live, same generation":   {func(p *part) { p.poke("generation", 5) }, claim, redisscript.OwnHeld},
			"live, higher generation": {func(p *part) { p.poke("generation", 6) }, claim, redisscript.OwnHeld},
			"live, no generation":     {func(*part) {}, claim, redisscript.OwnHeld},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				first := p.self.Epoch
				p.self.Token = owner{2}
				c.prepare(p)
				p.shorten()
				before := p.head()
				call := redisscript.NewOwnAcquire(p.keys, p.self, c.claim)
				var r redisscript.OwnReply
				ask := func() { r = p.want(c.want, call) }
				switch c.want {
				case redisscript.OwnAcquired:
					ask()
					h := p.head()
					if r.Before != first || r.Epoch <= first || r.Epoch < uint64(r.Now/time.Millisecond)*1024 || h.Epoch != r.Epoch {
						t.Errorf("epoch %d, head's %d; before %d, was %d", r.Epoch, h.Epoch, r.Before, first)
					}
					if h.Generation != c.claim.Generation || r.Seq != before.Seq+1 || h.Seq != r.Seq || !p.renewed() {
						t.Errorf("%+v, head %+v, lease %v", r, h, p.lease())
					}
					if again := p.want(redisscript.OwnMine, call); again.Epoch != r.Epoch || again.Before != 0 {
						t.Errorf("sent again: %+v", again)
					}
				case redisscript.OwnMine:
					ask()
					if h := p.head(); r.Epoch != first || h.Epoch != first || h.Generation != 5 || !p.renewed() || r.Seq != before.Seq+1 || h.Seq != r.Seq {
						t.Errorf("%+v, head %+v, lease %v", r, h, p.lease())
					}
				default:
					p.unchanged(ask)
					if p.renewed() {
						t.Error("the lease was renewed")
					}
					if c.want == redisscript.OwnHeld && (r.Left <= 0 || r.Left > ownLease/2) {
						t.Errorf("left %v", r.Left)
					}
				}
			})
		}
	})
}

func (p *part) remap(m redisscript.OwnRemap) redisscript.OwnReply {
	p.t.Helper()
	return p.want(redisscript.OwnMapped, redisscript.NewOwnRemap(p.keys, m))
}

// TestOwnAcquireDropsOldBegins prevents a run that grows for ever, and one that loses what
// is not old, or belongs to an epoch that goes on.
func TestOwnAcquireDropsOldBegins(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		now := p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{})).Now
		put := func(n uint64, age time.Duration) string {
			name := p.begin(n, int64(n)*2)
			p.must(p.client.HSet(t.Context(), p.keys.Run, name, redisscript.OwnBlob(int64((now-age)/time.Millisecond)&^1, int64(n)*2)).Err())
			return name
		}
		put(1, ownHold+time.Minute)
		young := put(2, ownHold-time.Minute)
		claim := redisscript.NewOwnAcquire(p.keys, p.self, redisscript.OwnClaim{Hold: ownHold})
		p.want(redisscript.OwnMine, claim)
		if got := p.begun(); len(got) != 2 {
			t.Errorf("mine has dropped begins: %v", got)
		}
		p.lapse()
		p.want(redisscript.OwnAcquired, claim)
		if got, want := p.begun(), map[string][]int64{young: {4}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("run has %v, want %v", got, want)
		}
	})
}

// TestOwnTurn has one turn with everything in it meet everything that may be there.
func TestOwnTurn(t *testing.T) {
	const marks, touches, ended, begins, lease, seq = 1, 2, 4, 8, 16, 32 // what is done
	const rest = marks | touches | ended | lease | seq
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part, turn *redisscript.OwnTurn)
			want    string
			does    int
		}{
			"ours":               {func(*part, *redisscript.OwnTurn) {}, redisscript.OwnDone, rest | begins},
			"a later epoch":      {func(p *part, _ *redisscript.OwnTurn) { p.poke("epoch", p.self.Epoch+1) }, redisscript.OwnStale, 0},
			"an epoch before":    {func(p *part, _ *redisscript.OwnTurn) { p.poke("epoch", p.self.Epoch-1) }, redisscript.OwnStale, 0},
			"another's token":    {func(p *part, _ *redisscript.OwnTurn) { p.self.Token = owner{2} }, redisscript.OwnStale, 0},
			"taken over":         {func(p *part, _ *redisscript.OwnTurn) { p.rob() }, redisscript.OwnStale, 0},
			"forgotten, no one":  {func(p *part, _ *redisscript.OwnTurn) { p.lapse(); p.forgetNothing() }, redisscript.OwnStale, 0},
			"no head":            {func(p *part, _ *redisscript.OwnTurn) { p.must(p.client.Del(t.Context(), p.keys.Head).Err()) }, redisscript.OwnAmnesia, 0},
			"a generation early": {func(_ *part, turn *redisscript.OwnTurn) { turn.Gen-- }, redisscript.OwnEdge, 0},
			"a generation late":  {func(_ *part, turn *redisscript.OwnTurn) { turn.Gen++ }, redisscript.OwnEdge, 0},
			"head is ahead":      {func(p *part, _ *redisscript.OwnTurn) { p.poke("g", p.g+1) }, redisscript.OwnEdge, 0},
			"into a folded set":  {func(_ *part, turn *redisscript.OwnTurn) { turn.N = 0 }, redisscript.OwnEdge, 0},
			"edge and lapsed":    {func(p *part, turn *redisscript.OwnTurn) { p.lapse(); turn.Gen-- }, redisscript.OwnEdge, 0},
			"lapsed":             {func(p *part, _ *redisscript.OwnTurn) { p.lapse() }, redisscript.OwnLapsed, marks | ended | seq},
			"lapsed and shared":  {func(p *part, _ *redisscript.OwnTurn) { p.lapse(); p.share() }, redisscript.OwnLapsed, marks | ended | seq},
			"behind":             {func(p *part, _ *redisscript.OwnTurn) { p.self.Seq = 100 }, redisscript.OwnBehind, rest &^ seq},
			"behind and shared":  {func(p *part, _ *redisscript.OwnTurn) { p.self.Seq = 100; p.share() }, redisscript.OwnBehind, rest &^ seq},
			"heard less":         {func(p *part, _ *redisscript.OwnTurn) { p.self.Seq = 0 }, redisscript.OwnDone, rest | begins},
			"shared":             {func(p *part, _ *redisscript.OwnTurn) { p.share() }, redisscript.OwnShared, rest},
			"shared no more":     {func(p *part, _ *redisscript.OwnTurn) { p.poke("shared", 1) }, redisscript.OwnDone, rest | begins},
			"a later map":        {func(p *part, _ *redisscript.OwnTurn) { p.remap(redisscript.OwnRemap{MapVersion: 2}) }, redisscript.OwnShared, rest},
			"an older map":       {func(p *part, _ *redisscript.OwnTurn) { p.self.MapVersion = 2 }, redisscript.OwnShared, rest},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				old := p.begin(1, 2)
				turn := p.turn(1, []int64{2, 4}, []int64{6})
				turn.Ended = []string{old}
				turn.Begin = []redisscript.OwnField{{Name: redisscript.OwnFieldName(p.self.Epoch, 2), Blob: redisscript.OwnBlob(8, 10)}}
				c.prepare(p, turn)
				if p.lease() > 0 {
					p.shorten()
				}
				before := p.head()
				r := p.want(c.want, redisscript.NewOwnTurn(p.keys, p.self, turn))

				var set []int64
				run := map[string][]int64{old: {2}}
				if c.does&marks != 0 {
					set = append(set, 2, 4)
				}
				if c.does&touches != 0 {
					set = append(set, 7)
				}
				if c.does&ended != 0 {
					delete(run, old)
				}
				if c.does&begins != 0 {
					run[turn.Begin[0].Name] = []int64{8, 10}
				}
				p.wantMembers(turn.Fresh, set...)
				if got := p.begun(); !maps.EqualFunc(got, run, slices.Equal) {
					t.Errorf("run has %v, want %v", got, run)
				}
				if got, want := p.renewed(), c.does&lease != 0; got != want {
					t.Errorf("renewed: %t, want %t", got, want)
				}
				if c.want == redisscript.OwnAmnesia {
					return
				}
				h := p.head()
				want := *before
				want.Seq += uint64(c.does & seq / seq)
				if c.does != 0 {
					want.Fence = max(before.Fence+1, uint64(r.Now/time.Millisecond)*1024)
					want.Gens = map[int64]redisscript.OwnGen{p.g: {Newest: 1, Fresh: int64(len(set))}}
				}
				if fmt.Sprint(*h) != fmt.Sprint(want) {
					t.Errorf("head is\n%+v, want\n%+v", *h, want)
				}
				if r.Seq != h.Seq || r.Fence != h.Fence || r.Epoch != h.Epoch || r.MapVersion != h.MapVersion || r.SharedUntil != h.SharedUntil ||
					r.Gen != max(h.Gen, p.g) {
					t.Errorf("answered %+v over head %+v", r, h)
				}
			})
		}
	})
}

// rob has another take the partition over.
func (p *part) rob() {
	p.t.Helper()
	p.lapse()
	self := p.self
	self.Token = owner{9}
	p.want(redisscript.OwnAcquired, redisscript.NewOwnAcquire(p.keys, self, redisscript.OwnClaim{Hold: ownHold}))
}

func (p *part) share() { p.remap(redisscript.OwnRemap{Span: time.Hour}) }

// forgetNothing forgets an id that is in no set.
func (p *part) forgetNothing() {
	p.t.Helper()
	h := p.head()
	p.want(redisscript.OwnForgotten, redisscript.NewOwnForget(p.keys, &redisscript.OwnForget{ID: 1000, Gen: h.Gen, Newest: h.Gens[h.Gen].Newest}))
}

// TestOwnTurnAgain has turns come twice, and late: the counts stay exact, and all that can
// come back is a begin that has ended.
func TestOwnTurnAgain(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		turn := p.turn(1, []int64{2, 4}, []int64{2})
		name := redisscript.OwnFieldName(p.self.Epoch, 1)
		turn.Begin = []redisscript.OwnField{{Name: name, Blob: redisscript.OwnBlob(8)}}
		call := redisscript.NewOwnTurn(p.keys, p.self, turn)
		first, again := p.want(redisscript.OwnDone, call), p.want(redisscript.OwnDone, call)
		if again.Fence <= first.Fence || again.Seq != first.Seq+1 {
			t.Errorf("first %+v, again %+v", first, again)
		}
		p.wantMembers(p.fresh(1), 2, 3, 4)
		if g := p.head().Gens[p.g]; g != (redisscript.OwnGen{Newest: 1, Fresh: 3}) {
			t.Errorf("counted %+v", g)
		}

		end := p.turn(2, []int64{8}, nil)
		end.Ended = []string{name}
		p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, end))
		p.want(redisscript.OwnDone, call)
		if got := p.begun(); len(got) != 1 || !slices.Equal(got[name], []int64{8}) {
			t.Errorf("run has %v", got)
		}
		if g := p.head().Gens[p.g]; g != (redisscript.OwnGen{Newest: 2, Fresh: 4}) {
			t.Errorf("counted %+v", g)
		}

		p.want(redisscript.OwnReleased, redisscript.NewOwnRelease(p.keys, p.self, []string{name}))
		p.want(redisscript.OwnLapsed, call)
		p.acquire()
		if got := p.begun(); len(got) != 0 {
			t.Errorf("a turn of one who has released begins: %v", got)
		}
		p.unchanged(func() { p.want(redisscript.OwnStale, call) }, p.fresh(1))
	})
}

// TestOwnTurnWithoutMarks renews at every generation, and names none.
func TestOwnTurnWithoutMarks(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.shorten()
		r := p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{}))
		if !p.renewed() || r.Gen != p.g || p.head().Gen != p.g {
			t.Errorf("answered %+v, head %+v, lease %v", r, p.head(), p.lease())
		}
		if n := p.client.Exists(t.Context(), p.fresh(1), p.keys.Run).Val(); n != 0 {
			t.Errorf("%d sets were made", n)
		}
	})
}

// TestOwnBeginNeverOverwritten prevents a begin that is lost under the name of another.
func TestOwnBeginNeverOverwritten(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		name := p.begin(1, 2)
		at := p.client.HGet(t.Context(), p.keys.Run, name).Val()
		p.begin(1, 2)
		f := []redisscript.OwnField{{Name: name, Blob: redisscript.OwnBlob(4)}}
		r := p.runner.RunOwn(t.Context(), []redisscript.Call{redisscript.NewOwnTurn(p.keys, p.self, &redisscript.OwnTurn{Begin: f})})[0]
		if r.Err == nil {
			t.Errorf("answered %+v", r)
		}
		if got := p.client.HGet(t.Context(), p.keys.Run, name).Val(); got != at {
			t.Errorf("the field was %x, is %x", at, got)
		}
	})
}

// TestOwnMembersAreExact prevents members that pass through a double, and calls that are
// too large for Lua's stack.
func TestOwnMembersAreExact(t *testing.T) {
	eachOwn(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		var ids, members []int64
		for i := range redisscript.OwnMost / 2 {
			id := int64(uint64(i)*0x9e3779b97f4a7c15) &^ 1
			ids, members = append(ids, id), append(members, id, id+1)
		}
		ids[0], members[0], members[1] = math.MaxInt64-1, math.MaxInt64-1, math.MaxInt64
		ids[1], members[2], members[3] = math.MinInt64, math.MinInt64, math.MinInt64+1
		turn := p.turn(1, ids, ids)
		for i, id := range ids {
			f := redisscript.OwnField{Name: redisscript.OwnFieldName(p.self.Epoch, uint64(i)), Blob: redisscript.OwnBlob(id)}
			turn.Begin, turn.Ended = append(turn.Begin, f), append(turn.Ended, f.Name)
		}
		p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, turn))
		slices.Sort(members)
		if got := p.members(p.fresh(1)); !slices.Equal(got, members) {
			t.Errorf("%d members are not the %d that were added", len(got), len(members))
		}
		ask := &redisscript.OwnAsk{Epoch: p.self.Epoch, Foreign: true, Gen: p.g, Newest: 1, IDs: append(ids, 2), Fresh: []string{p.fresh(9), p.fresh(1), p.fresh(1)}}
		for i, f := range p.want(redisscript.OwnFound, redisscript.NewOwnAsk(p.keys, ask)).Found {
			if all := f.Done() && f.Begun(); all != (i < len(ids)) || f.Touched() || f > 7 {
				t.Fatalf("id %d: found %d", i, f)
			}
		}
		// The same, through lists of indexes.
		list := &redisscript.OwnAsk{Epoch: p.self.Epoch, IDs: ask.IDs, Buckets: []redisscript.OwnBucket{{Key: p.fresh(9)}, {Key: p.fresh(1), Of: []int{0, 0}}, {Key: p.fresh(1)}}}
		for i := range list.IDs {
			list.Buckets[0].Of, list.Buckets[2].Of = append(list.Buckets[0].Of, i), append(list.Buckets[2].Of, len(ids)-i)
		}
		for i, f := range p.want(redisscript.OwnFound, redisscript.NewOwnAsk(p.keys, list)).Found {
			if f.Done() != (i < len(ids)) || f > 1 {
				t.Fatalf("id %d: found %d", i, f)
			}
		}
		p.want(redisscript.OwnFolded, redisscript.NewOwnFold(p.keys, p.self, &redisscript.OwnFold{
			Fresh: p.fresh(1), Gen: p.g, N: 1, Count: len(members), Last: true, Buckets: []redisscript.OwnFill{{Key: p.bucket(1), Members: members}},
		}))
		if got := p.members(p.bucket(1)); !slices.Equal(got, members) {
			t.Errorf("%d members are not the %d that were folded", len(got), len(members))
		}
		turn.Begin = nil
		turn.N, turn.Fresh = 2, p.fresh(2)
		p.want(redisscript.OwnDone, redisscript.NewOwnTurn(p.keys, p.self, turn))
		if got := p.begun(); len(got) != 0 {
			t.Errorf("%d fields are left", len(got))
		}
	})
}
