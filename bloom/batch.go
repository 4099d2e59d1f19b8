package bloom

// Query is one id of a batch, and what Where says of it.
type Query struct {
	ID     [16]byte // set by the caller; the rest is overwritten
	In     uint64   // bit i: generation oldest+i may hold the id
	Answer Answer
	Reason Reason // why Answer is Unknown, else None
}

// group is how many ids of a batch have their blocks fetched at the same time: with six generations
// about 200 cache lines, a third of the usual first-level cache.
const group = 32

// WhereAll is Where for many ids at once, with one state of the filter. It fills in the batch, and
// returns the oldest generation of the filter, to which bit 0 of each In belongs. It takes no
// lock, allocates nothing and reads no clock. Where the bits do not fit the caches of the
// processor, an id takes as long as memory takes to answer. In a batch these waits overlap, so that
// WhereAll takes half the time of as many calls of Where. It does not compare the ids of a batch:
// an id that is in it twice may be ProvenNew both times.
func (f *Filter) WhereAll(batch []Query) (oldest int64) {
	t := f.live.Load()
	var n [3]uint64
	why := t.reason()
	for left := batch; len(left) > 0; {
		some := left[:min(group, len(left))]
		left = left[len(some):]
		f.find(t, some)
		for i := range some {
			q := &some[i]
			q.Answer, q.Reason = Unknown, why
			if why == None {
				q.Answer, q.Reason = t.answer(q.In != 0)
			}
			n[q.Answer]++
		}
	}
	if why == None {
		why = Saturated // the only reason of a table that is covered
	}
	f.countAll(&n, why)
	return t.oldest()
}

// find sets In. First it reads one word of every block without using it, so that the processor
// requests all blocks before it waits for one.
func (f *Filter) find(t *table, some []Query) {
	var digests [group]digest
	ds := digests[:len(some)]
	for i := range some {
		ds[i] = f.secret.id(some[i].ID)
		some[i].In = 0
	}
	for _, g := range t.gens {
		for _, l := range g.all() {
			for i := range ds {
				l.touch(ds[i])
			}
		}
	}
	for i := range some {
		m := ds[i].mask()
		for at, g := range t.gens {
			if g.has(ds[i], &m) {
				some[i].In |= 1 << at
			}
		}
	}
}
