package script_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// model does in Go what the scripts must do. Each of its methods is one script. It gets the
// server's clock from the script's answer, and returns what the rest of that answer must be.
type model struct {
	head *script.State
	// own is the owner's token and epoch, "" for nobody, and until when.
	own   string
	until time.Duration
	run   map[string]modelBegin
	sets  map[string]modelSet
	// buckets are lists: the same member may be there twice.
	buckets map[string]modelBucket
	// bore: a lost partition was created anew, so counts are only lower bounds.
	bore bool
}

type modelBegin struct {
	at   time.Duration
	blob string
}

type modelSet struct {
	members map[int64]bool
	ends    time.Duration
}

type modelBucket struct {
	members []int64
	ends    time.Duration
}

func newModel() *model {
	return &model{run: make(map[string]modelBegin), sets: make(map[string]modelSet),
		buckets: make(map[string]modelBucket)}
}

// expire drops what is over.
func (m *model) expire(now time.Duration) {
	if now >= m.until {
		m.own = ""
	}
	maps.DeleteFunc(m.sets, func(_ string, s modelSet) bool { return now >= s.ends })
	maps.DeleteFunc(m.buckets, func(_ string, b modelBucket) bool { return now >= b.ends })
}

func ownValue(token [16]byte, epoch uint64) string { return fmt.Sprint(string(token[:]), epoch) }

func laterThan(n uint64, now time.Duration) uint64 {
	return max(n+1, uint64(now.Milliseconds())*1024)
}

// reply is an answer over head as it is now.
func (m *model) reply(answer string, now time.Duration) script.Reply {
	r := script.Reply{Answer: answer, Now: now}
	if h := m.head; h != nil {
		r.SharedUntil, r.Gen, r.Epoch, r.Seq, r.Fence, r.Forgets, r.MapVersion = h.SharedUntil,
			h.Gen, h.Epoch, h.Seq, h.Fence, h.Forgets, h.MapVersion
	}
	return r
}

func (m *model) add(key string, ends time.Duration, members ...int64) (added int64) {
	s, ok := m.sets[key]
	if !ok {
		s.members = make(map[int64]bool)
	}
	for _, id := range members {
		if !s.members[id] {
			s.members[id] = true
			added++
		}
	}
	s.ends = ends
	m.sets[key] = s
	return added
}

// fill adds members to a bucket, unless it ends with them.
func (m *model) fill(key string, ends time.Duration, members []int64) (added int64) {
	b := m.buckets[key]
	if at := len(b.members) - len(members); at >= 0 && slices.Equal(b.members[at:], members) {
		return 0
	}
	m.buckets[key] = modelBucket{slices.Concat(b.members, members), ends}
	return int64(len(members))
}

func (m *model) acquire(self script.Owner, c script.Claim,
	now time.Duration) script.Reply {
	h := m.head
	switch {
	case h == nil || h.Lost:
		return m.reply(script.AnswerAmnesia, now)
	case h.MapVersion != self.MapVersion:
		return m.reply(script.AnswerRemapped, now)
	case m.own == ownValue(self.Token, h.Epoch):
		h.Seq++
		h.Generation = max(h.Generation, c.Generation)
		m.until = now + self.Lease
		r := m.reply(script.AnswerMine, now)
		r.Newest = h.Gens[h.Gen].Newest
		return r
	case m.own != "" && (!c.TakeOver || h.Generation <= 0 || h.Generation >= c.Generation):
		r := m.reply(script.AnswerHeld, now)
		r.Newest, r.Left = h.Gens[h.Gen].Newest, m.until-now
		return r
	}
	before := h.Epoch
	if c.Mine != before {
		h.Since = laterThan(before, now)
	}
	maps.DeleteFunc(m.run, func(name string, b modelBegin) bool {
		return modelEpoch(name) < h.Since && b.at+c.Hold <= now
	})
	h.Epoch, h.Generation, h.Seq = laterThan(before, now), c.Generation, h.Seq+1
	m.own, m.until = ownValue(self.Token, h.Epoch), now+self.Lease
	r := m.reply(script.AnswerAcquired, now)
	r.Newest, r.Before = h.Gens[h.Gen].Newest, before
	return r
}

// mine reports whether nobody else has the partition.
func (m *model) mine(self script.Owner) bool {
	return m.head.Epoch == self.Epoch && (m.own == "" || m.own == ownValue(self.Token, self.Epoch))
}

func (m *model) turn(self script.Owner, t *script.Batch,
	now time.Duration) script.Reply {
	h := m.head
	if h == nil {
		return m.reply(script.AnswerAmnesia, now)
	}
	if !m.mine(self) {
		return m.reply(script.AnswerStale, now)
	}
	g := h.Gens[t.Gen]
	current := max(int64(now/self.Slice), h.Gen)
	if len(t.Marks)+len(t.Touches) > 0 && (t.Gen != current || t.N <= g.Folded) {
		r := m.reply(script.AnswerEdge, now)
		r.Gen, r.Newest = current, g.Newest
		return r
	}
	answer := script.AnswerDone
	switch {
	case m.own == "":
		answer = script.AnswerLapsed
	case h.Seq < self.Seq:
		answer = script.AnswerBehind
	case h.SharedUntil > now || h.MapVersion != self.MapVersion:
		answer = script.AnswerShared
	}
	members := slices.Clone(t.Marks)
	if answer != script.AnswerLapsed {
		for _, id := range t.Touches {
			members = append(members, id+1)
		}
		m.until = now + self.Lease
	}
	if len(members) > 0 {
		g.Fresh += m.add(t.Fresh, time.Duration(current+3)*self.Slice+self.Keep, members...)
		g.Newest = max(g.Newest, t.N)
		h.Gens[t.Gen] = g
	}
	for _, name := range t.Ended {
		delete(m.run, name)
	}
	if answer == script.AnswerDone {
		for _, b := range t.Begin {
			if _, ok := m.run[b.Name]; !ok {
				m.run[b.Name] = modelBegin{now, b.Blob}
			}
		}
	}
	if current > h.Gen {
		h.Gen = current
		maps.DeleteFunc(h.Gens, func(g int64, _ script.Gen) bool {
			return time.Duration(g+3)*self.Slice+self.Keep <= now
		})
	}
	if answer != script.AnswerBehind {
		h.Seq++
	}
	h.Fence = laterThan(h.Fence, now)
	r := m.reply(answer, now)
	r.Newest = g.Newest
	return r
}

func (m *model) ask(q *script.Ask, now time.Duration) script.Reply {
	h := m.head
	if h == nil || h.Lost {
		return m.reply(script.AnswerAmnesia, now)
	}
	newest := h.Gens[h.Gen].Newest
	r := m.reply(script.AnswerFound, now)
	if q.Foreign {
		r.Newest = newest
	}
	if h.Epoch != q.Epoch || q.Foreign && (h.Gen != q.Gen || newest != q.Newest) {
		r.Answer = script.AnswerStale
		return r
	}
	r.Found = make([]script.IDState, len(q.IDs))
	for i, id := range q.IDs {
		r.Found[i] = m.find(q, i)
		if !q.Foreign {
			continue
		}
		epochs := make(map[uint64]bool)
		for name, b := range m.run {
			if slices.Contains(modelIDs(b.blob), id) {
				epochs[modelEpoch(name)] = true
			}
		}
		runs := len(epochs)
		for of := range epochs {
			if of >= h.Since && !r.Found[i].Begun() {
				r.Found[i] |= 4
				runs--
			}
		}
		r.Found[i] += script.IDState(8 * runs)
	}
	r.Live = q.Foreign && m.own != ""
	r.Moved = !q.Foreign && slices.ContainsFunc(q.FoldedTo, func(f script.FoldedTo) bool {
		return h.Gens[f.Gen].Folded != f.N
	})
	return r
}

func modelEpoch(name string) (epoch uint64) {
	_, _ = fmt.Sscanf(name, "%d:", &epoch)
	return epoch
}

func modelIDs(blob string) []int64 {
	run, _ := script.ReadRun(map[string]string{"1:1": script.Blob(0) + blob})
	return run[0].IDs
}

func (m *model) find(q *script.Ask, i int) (found script.IDState) {
	in := func(member int64) bool {
		return slices.ContainsFunc(q.Fresh, func(key string) bool {
			return m.sets[key].members[member]
		}) ||
			slices.ContainsFunc(q.Buckets, func(b script.Bucket) bool {
				return slices.Contains(b.Of, i) && slices.Contains(m.buckets[b.Key].members, member)
			})
	}
	switch {
	case in(q.IDs[i]):
		return 1
	case in(q.IDs[i] + 1):
		return 2
	}
	return 0
}

func (m *model) fold(self script.Owner, f *script.Fold,
	now time.Duration) script.Reply {
	h := m.head
	if h == nil {
		return m.reply(script.AnswerAmnesia, now)
	}
	g := h.Gens[f.Gen]
	answer := script.AnswerFolded
	switch {
	case h.Epoch != self.Epoch:
		answer = script.AnswerStale
	case f.N <= g.Folded || f.N > g.Newest:
	case h.Forgets != f.Forgets:
		answer = script.AnswerForgot
	case len(m.sets[f.Fresh].members) != f.Count:
		answer = script.AnswerGrown
	default:
		for _, b := range f.Buckets {
			g.Kept += m.fill(b.Key, time.Duration(f.Gen+3)*self.Slice+self.Keep, b.Members)
		}
		if f.Last {
			delete(m.sets, f.Fresh)
			g.Folded, g.Fresh = f.N, g.Fresh-int64(f.Count)
		}
		h.Gens[f.Gen] = g
	}
	r := m.reply(answer, now)
	r.Newest = g.Newest
	return r
}

func (m *model) release(self script.Owner, ended []string,
	now time.Duration) script.Reply {
	if m.head == nil {
		return m.reply(script.AnswerAmnesia, now)
	}
	if !m.mine(self) {
		return m.reply(script.AnswerStale, now)
	}
	for _, name := range ended {
		delete(m.run, name)
	}
	m.own = ""
	m.head.Seq++
	return m.reply(script.AnswerReleased, now)
}

func (m *model) remap(c script.Remap, now time.Duration) script.Reply {
	if m.head == nil {
		if !c.Bear {
			return m.reply(script.AnswerAmnesia, now)
		}
		m.head = &script.State{Epoch: laterThan(0, now),
			Gens: make(map[int64]script.Gen)}
		m.head.Since = m.head.Epoch
	}
	h := m.head
	if h.Lost && c.Bear {
		if c.Span == 0 {
			return m.reply(script.AnswerAmnesia, now)
		}
		h.Lost, m.bore = false, true
		for g, of := range h.Gens {
			of.Fresh, of.Kept = 0, 0
			h.Gens[g] = of
		}
	}
	h.MapVersion = max(h.MapVersion, c.MapVersion)
	if c.Span > 0 {
		h.SharedUntil = max(h.SharedUntil, now+c.Span)
	}
	h.Lost = h.Lost || c.Lost
	return m.reply(script.AnswerMapped, now)
}

func (m *model) forget(f *script.Forget, now time.Duration) script.Reply {
	h := m.head
	if h == nil {
		return m.reply(script.AnswerAmnesia, now)
	}
	newest := h.Gens[h.Gen].Newest
	refused := func(answer string) script.Reply {
		r := m.reply(answer, now)
		r.Newest = newest
		return r
	}
	if h.Gen != f.Gen || newest != f.Newest {
		return refused(script.AnswerStale)
	}
	marked := script.IDState(0)
	for _, s := range slices.Concat(f.Fresh, f.Buckets) {
		if m.sets[s.Key].members[f.ID] || slices.Contains(m.buckets[s.Key].members, f.ID) {
			marked = 1
		}
	}
	if m.own != "" && marked == 0 && m.own != ownValue(f.Token, h.Epoch) {
		for name, b := range m.run {
			if modelEpoch(name) >= h.Since && slices.Contains(modelIDs(b.blob), f.ID) {
				return refused(script.AnswerInFlight)
			}
		}
	}
	for name, b := range m.run {
		ids := modelIDs(b.blob)
		left := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return id == f.ID })
		if m.own != "" && modelEpoch(name) >= h.Since || len(left) == len(ids) {
			continue
		}
		if m.run[name] = (modelBegin{b.at, script.Blob(left...)}); len(left) == 0 {
			delete(m.run, name)
		}
	}
	for _, s := range f.Buckets {
		b, g := m.buckets[s.Key], h.Gens[s.Gen]
		left := slices.DeleteFunc(slices.Clone(b.members), func(id int64) bool {
			return id == f.ID
		})
		if len(left) == len(b.members) {
			continue
		}
		g.Kept -= int64(len(b.members) - len(left))
		h.Gens[s.Gen] = g
		if m.buckets[s.Key] = (modelBucket{left, b.ends}); len(left) == 0 {
			delete(m.buckets, s.Key)
		}
	}
	for _, s := range f.Fresh {
		if !m.sets[s.Key].members[f.ID] {
			continue
		}
		g := h.Gens[s.Gen]
		g.Fresh--
		h.Gens[s.Gen] = g
		if delete(m.sets[s.Key].members, f.ID); len(m.sets[s.Key].members) == 0 {
			delete(m.sets, s.Key)
		}
	}
	h.Forgets++
	if m.own == "" {
		h.Epoch = laterThan(h.Epoch, now)
	}
	r := refused(script.AnswerForgotten)
	r.Found = []script.IDState{marked}
	return r
}
