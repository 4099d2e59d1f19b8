package bloom

// growAt is the multiple of its goal at which a layer gets the next one. saturatedAt is the
// multiple of the filter's goal, over all generations, at which a hit becomes meaningless.
const (
	growAt      = 1.5
	saturatedAt = 4
)

// write puts d into the last layer of g, unless the bits are there already.
func (f *Filter) write(g *generation, d digest) {
	m := d.mask()
	if g.has(d, &m) {
		return
	}
	layers := g.all()
	if layers == nil {
		if layers = f.firstLayer(g); layers == nil {
			return
		}
	}
	if layers[len(layers)-1].add(d) && g.fresh.Add(1)%max(1, f.plan.SliceKeys/64) == 0 {
		f.weigh(g)
	}
}

// firstLayer allocates the bits of g. It is nil when g was dropped: nobody reads it again.
func (f *Filter) firstLayer(g *generation) []*layer {
	f.grow.Lock()
	defer f.grow.Unlock()
	if layers := g.all(); layers != nil {
		return layers
	}
	if f.live.Load().gen(g.index) != g {
		return nil
	}
	layers := []*layer{f.layer(f.plan.Bits)}
	g.layers.Store(&layers)
	return layers
}

// weigh estimates the rate of false positives of g from its bits. A g that is too full gets another
// layer of twice the size, with half the goal. Where MaxBytes forbids that, hits become Unknown.
func (f *Filter) weigh(g *generation) {
	f.grow.Lock()
	last, _ := g.sample()
	var events []Event
	if n := len(g.all()); n > 0 && last > growAt*f.goal(n-1) && f.enlarge(g) {
		f.grown.Add(1)
		events = append(events, Event{Kind: Grown, Generation: g.index})
	}
	f.grow.Unlock()
	f.notify(f.live.Load(), events)
	if t := f.live.Load(); f.tooFull(t) != t.saturated {
		f.resaturate()
	}
}

// goal returns the rate at which layer n of a generation may answer wrongly.
func (f *Filter) goal(n int) float64 {
	return f.opts.FalsePositives / float64(f.plan.Generations) / float64(uint64(1)<<n)
}

// enlarge adds a layer to g if MaxBytes has room for it and for the first layers yet to come.
func (f *Filter) enlarge(g *generation) bool {
	layers := g.all()
	t := f.live.Load()
	if t.gen(g.index) != g {
		return false
	}
	size := f.plan.Bits << len(layers)
	if size>>len(layers) != f.plan.Bits || f.bytes(t)+size/8 > uint64(f.opts.MaxBytes) {
		return false
	}
	more := append(layers[:len(layers):len(layers)], f.layer(size))
	g.layers.Store(&more)
	return true
}

// bytes returns the memory of all generations, counting those that have no id yet as planned.
func (f *Filter) bytes(t *table) (n uint64) {
	for _, g := range t.gens {
		n += max(g.bytes(), f.plan.Bits/8)
	}
	return n
}

func (f *Filter) tooFull(t *table) bool {
	return t.estimated() > saturatedAt*f.opts.FalsePositives
}

func (f *Filter) resaturate() {
	f.change(func(t *table) (*table, []Event) {
		next := *t
		next.saturated = f.tooFull(t)
		if next.saturated && !t.saturated {
			return &next, []Event{{Kind: SaturatedNow, Generation: t.newest}}
		}
		return &next, nil
	})
}
