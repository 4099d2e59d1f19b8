package owned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// loadTries bounds how often marks are counted again because some were forgotten meanwhile, and
	// how often generations that began meanwhile are covered.
	loadTries = 16
	// maxFresh bounds the fresh sets of a generation that were not folded. It is far above any real
	// number.
	maxFresh = 1 << 20
	// snapshotTimeout bounds reading or writing one snapshot.
	snapshotTimeout = 30 * time.Second
)

// loader feeds the members of a partition to its filter.
type loader struct {
	reader
	names   *names
	buckets int
	slice   time.Duration
	keep    time.Duration
	filter  *bloom.Filter
	feed    *bloom.Feed
	name    string // of the source in snapshots
	epoch   uint64
	clock   func() time.Duration            // the server's, as last heard
	hear    func(ctx context.Context) error // asks the server for its clock
	open    func()                          // opens the feed until the end of the lease

	// first is the head as it was when the partition was acquired, before we wrote anything. The
	// method base subtracts what was forgotten since.
	first        *script.State
	snapshots    Snapshots // may be nil
	snapshotName func(gen int64) string
	saver        *saver
	log          *slog.Logger
	progress     *loading
}

// loading is how far a load has come.
type loading struct {
	members atomic.Int64 // fed by now
	of      atomic.Int64 // that head counts
}

// load feeds all marks and touches that the partition has within the window, newest generation
// first, and then says that everything is covered. Since the acquire, every mark is fed before it
// is sent, and nobody else writes marks. So a mark that is not in the sets when they are read has
// been fed.
//
// load compares the counts that head had at the acquire with the sets that head named then: nobody
// adds to those any more. If it counted our own sets too, one of our members would make up for a
// lost member.
//
// Fewer members than head counts are [ErrAmnesia], with two exceptions. Some members may have been
// forgotten meanwhile; each Forget lowers the count. Or the sets have expired by then, because this
// process may have stood still. Another epoch is [ErrLost]. After any other error load can be
// called again.
func (l *loader) load(ctx context.Context) error {
	head, err := l.head(ctx)
	if err != nil {
		return err
	}
	for range loadTries {
		if head, err = l.base(ctx, head); err != nil {
			return err
		}
		fewer, err := l.feedAll(ctx, head)
		if err != nil {
			return err
		}
		if fewer == nil {
			return l.cover(head)
		}
		if err := l.hear(ctx); err != nil {
			return err
		}
		after, err := l.head(ctx)
		switch {
		case err != nil:
			return err
		case after.Forgets == head.Forgets && l.within(fewer.gen):
			return fewer
		}
		head = after
	}
	return errors.New("owned: load: keys are forgotten all the time")
}

// base updates l.first to the forgets that head has seen, and returns a head with the same number
// of forgets. The sets that were there at the acquire then have as many members as head counts,
// minus the members of our own sets. One transaction reads head and our own sets.
func (l *loader) base(ctx context.Context, head *script.State) (*script.State,
	error) {
	for range loadTries {
		if l.first == nil || l.first.Forgets == head.Forgets {
			return head, nil
		}
		now, ours, err := l.countOurs(ctx, head)
		if err != nil {
			return nil, err
		}
		if l.sameSets(head, now) {
			first := *now
			first.Gens = make(map[int64]script.Gen, len(now.Gens))
			for gen, sets := range now.Gens {
				sets.Newest = l.first.Gens[gen].Newest
				sets.Fresh -= ours[gen]
				first.Gens[gen] = sets
			}
			l.first = &first
		}
		head = now
	}
	return nil, errors.New("owned: load: sets are begun all the time")
}

// countOurs reads head, and counts the members of the sets that were begun since first.
func (l *loader) countOurs(ctx context.Context, head *script.State) (*script.State,
	map[int64]int64, error) {
	type got struct {
		head  *redis.MapStringStringCmd
		cards map[int64][]*redis.IntCmd
		err   error
	}
	g, err := script.Within(ctx, func() (g got) {
		pipe := l.client.TxPipeline()
		g.head, g.cards = pipe.HGetAll(ctx, l.names.head), make(map[int64][]*redis.IntCmd)
		for gen, sets := range head.Gens {
			from := max(l.first.Gens[gen].Newest, sets.Folded)
			for n := from + 1; n <= sets.Newest && n-from <= maxFresh; n++ {
				g.cards[gen] = append(g.cards[gen], pipe.SCard(ctx, l.names.fresh(gen, n)))
			}
		}
		_, g.err = pipe.Exec(ctx)
		return g
	})
	if err = errors.Join(err, g.err); err != nil {
		return nil, nil, fmt.Errorf("owned: load: %w", err)
	}
	ours := make(map[int64]int64)
	for gen, cards := range g.cards {
		for _, n := range cards {
			ours[gen] += n.Val()
		}
	}
	now, err := l.checked(script.ReadHead(g.head.Val()))
	return now, ours, err
}

// sameSets reports whether two heads name the same fresh sets.
func (l *loader) sameSets(a, b *script.State) bool {
	return maps.EqualFunc(a.Gens, b.Gens, func(a, b script.Gen) bool {
		return a.Newest == b.Newest && a.Folded == b.Folded
	})
}

// head reads the partition's head, whose epoch must be ours.
func (l *loader) head(ctx context.Context) (*script.State, error) {
	heads, err := readHeads(ctx, l.client, []string{l.names.head})
	if err != nil {
		return nil, err
	}
	return l.checked(heads[0], nil)
}

func (l *loader) checked(head *script.State, err error) (*script.State, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("owned: %s: %w", l.names.head, err)
	case head == nil:
		return nil, fmt.Errorf("%w: it has no head", ErrAmnesia)
	case head.Epoch != l.epoch:
		return nil, ErrLost
	default:
		return head, nil
	}
}

// missing is the error that members of a generation are missing.
type missing struct {
	gen   int64
	error // wraps ErrAmnesia
}

func (m *missing) Unwrap() error { return m.error }

// alive returns the filter's oldest and newest generation at this time. It calls Check first,
// because Check looks at the clock and Where does not.
func (l *loader) alive() (oldest, newest int64) {
	_, _ = l.filter.Check([16]byte{})
	oldest, _, _, _ = l.filter.Where([16]byte{})
	return oldest, oldest + int64(l.filter.Plan().Generations) - 1
}

// feedAll feeds the sets that head names. It returns in fewer the generation whose members are
// missing, if there is one.
func (l *loader) feedAll(ctx context.Context, head *script.State) (fewer *missing,
	err error) {
	l.progress.members.Store(0)
	l.progress.of.Store(counted(head))
	gens := slices.Sorted(maps.Keys(head.Gens))
	for _, gen := range slices.Backward(gens) {
		if oldest, _ := l.alive(); gen < oldest {
			break
		}
		sets := head.Gens[gen]
		found, old, err := l.generation(ctx, head, gen, sets)
		if err != nil {
			return nil, err
		}
		if want := l.wanted(gen); old < want && l.within(gen) {
			return &missing{gen,
				fmt.Errorf("%w: generation %d has %d members from before, and %d were counted",
					ErrAmnesia, gen, old, want)}, nil
		}
		if want := sets.Fresh + sets.Kept; found < want && l.within(gen) {
			return &missing{gen, fmt.Errorf("%w: generation %d has %d members, and %d were counted",
				ErrAmnesia, gen, found, want)}, nil
		}
	}
	return nil, nil //nolint:nilnil // nothing is missing, and nothing failed
}

// wanted returns how many members the sets of a generation must have, counting only the sets that
// were there when the partition was acquired.
func (l *loader) wanted(gen int64) int64 {
	if l.first == nil {
		return 0
	}
	g := l.first.Gens[gen]
	return g.Fresh + g.Kept
}

// old counts the members of the sets that were there when the partition was acquired. Nothing is
// folded while a load runs.
func (l *loader) old(gen int64, sets script.Gen, cards []int64) (n int64) {
	if l.first == nil {
		return 0
	}
	fresh := int(sets.Newest - sets.Folded) // at most maxFresh
	// Folded only grows.
	was := min(fresh, int(max(l.first.Gens[gen].Newest, sets.Folded)-sets.Folded))
	for i, card := range cards {
		if i < was || i >= fresh {
			n += card
		}
	}
	return n
}

// counted returns how many members head counts.
func counted(head *script.State) (n int64) {
	for _, g := range head.Gens {
		n += max(g.Fresh+g.Kept, 0)
	}
	return n
}

// within reports whether the sets of a generation cannot have expired. It requires that they end at
// least a slice from now, by the server's clock as a reply gave it, at most a third of a lease ago.
func (l *loader) within(gen int64) bool {
	return time.Duration(gen+2)*l.slice+l.keep > l.clock()
}

// generation feeds the members of one generation. It returns how many members its sets have, and
// how many of these are in old sets.
func (l *loader) generation(ctx context.Context, head *script.State, gen int64,
	sets script.Gen) (found, old int64, err error) {
	keys, err := l.keys(gen, sets)
	if err != nil {
		return 0, 0, err
	}
	cards, err := l.count(ctx, keys)
	if err != nil {
		return 0, 0, err
	}
	old = l.old(gen, sets, cards)
	if gen < head.Gen && l.restore(ctx, gen, head.Seq) {
		for _, n := range cards {
			found += n
		}
		l.progress.members.Add(found)
		return found, old, nil
	}
	err = l.each(ctx, keys, cards, func(members []int64) error {
		for _, m := range members {
			if err := l.feed.Add(gen, filterKey(m)); err != nil {
				return fmt.Errorf("%w: %w", ErrLost, err)
			}
		}
		found += int64(len(members))
		l.progress.members.Add(int64(len(members)))
		return context.Cause(ctx)
	})
	return found, old, err
}

// keys names the sets of a generation that may have members. Buckets are empty until the first
// fold. While the first fold is under way, only the count of members in buckets shows that they are
// not empty.
func (l *loader) keys(gen int64, sets script.Gen) ([]stored, error) {
	if sets.Newest < sets.Folded || sets.Newest-sets.Folded > maxFresh {
		return nil, fmt.Errorf("%w: head of %s has fresh sets %d to %d in generation %d",
			script.ErrUnreadable, l.names.tag, sets.Folded, sets.Newest, gen)
	}
	var keys []stored
	for n := sets.Folded + 1; n <= sets.Newest; n++ {
		keys = append(keys, stored{key: l.names.fresh(gen, n)})
	}
	if sets.Folded > 0 || sets.Kept != 0 {
		for i := range l.buckets {
			keys = append(keys, stored{key: l.names.bucket(gen, i), bucket: true})
		}
	}
	return keys, nil
}

// restore loads the snapshot of a generation that nobody writes to any more, and reports whether
// the snapshot has all of it. If anything is wrong with a snapshot, the sets are read instead.
func (l *loader) restore(ctx context.Context, gen int64, seq uint64) bool {
	if l.snapshots == nil {
		return false
	}
	want := bloom.Source{Name: l.name, Epoch: l.epoch, Seq: seq}
	type got struct {
		gens []int64
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	g, err := script.Within(ctx, func() (g got) {
		from, err := l.snapshots.Load(ctx, l.snapshotName(gen))
		if err != nil {
			return got{err: err}
		}
		defer func() { _ = from.Close() }()
		g.gens, g.err = l.filter.Load(from, want)
		return g
	})
	switch err = errors.Join(err, g.err); {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		l.log.Warn("owned: a snapshot is of no use: the marks are read", "source", l.name,
			"generation", gen, "err", err)
		return false
	}
	whole := slices.Contains(g.gens, gen)
	if whole {
		l.saver.add(gen)
	}
	return whole
}

// cover tells the filter that all marks are known, and opens the feed. A generation that begins
// before the feed is open has only our own marks, which were fed. A generation that begins after
// that is covered without this call.
func (l *loader) cover(head *script.State) error {
	for range loadTries {
		oldest, newest := l.alive()
		last := max(newest, head.Gen)
		for gen := last - (newest - oldest); gen <= last; gen++ {
			if err := l.feed.Covered(gen, head.Seq); err != nil {
				return fmt.Errorf("%w: %w", ErrLost, err)
			}
		}
		l.open()
		if now, _ := l.alive(); now == oldest {
			return nil
		}
	}
	return errors.New("owned: load: generations begin all the time")
}
