package dedup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/singleflight"
	"github.com/onceward/onceward/dedup/internal/waiting"

	"github.com/onceward/onceward/dedup/internal/coalesce"
	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/drain"
	"github.com/onceward/onceward/dedup/internal/keytext"
)

// Deduper makes the effect of every key happen once per window. One per namespace and process is
// enough. It starts goroutines only while calls or handlers are under way. At most 65,536 single
// calls are under way at once; one more is not sent, and its outcome is unknown
// ([OutcomeUnknown]).
type Deduper struct {
	store    Store
	cfg      Config
	recycle  func([]driver.Answer) // gives answers back to the store when they have been read
	failures bool                  // the store keeps them

	oneWindow bool // the store has one window for all keys

	claims, ends *coalescer           // the same, if the store ends and claims in one round trip
	pairs        driver.FinishClaimer // that store, or nil
	notes        *coalescer           // what running attempts declare
	reads        *coalescer

	start    time.Time
	renewals *renewer
	inflight singleflight.Group[*Claim]
	waiters  waiting.Keys
	wakes    *wakes
	cache    *cache
	life     drain.Group
	releases pendingReleases
}

// New returns a Deduper over store. It starts no goroutine and sends nothing. The error is an
// [*InputError] for a nil store, also a nil pointer in the interface; a [Memory] without
// capacity; a bad field of cfg; and one that the store refuses (see [driver.Limits]).
func New(store Store, cfg Config) (*Deduper, error) {
	if err := checkStore("Store", store); err != nil {
		return nil, err
	}
	limits, anyHold := driver.LimitsOf(store), cfg.Hold == 0
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if anyHold {
		cfg.Hold = max(cfg.Hold, limits.MinHold)
	}
	if limits.NoResults && !cfg.SeenOnly {
		return nil, &InputError{Field: "Config.SeenOnly",
			Reason: "is not set, and the store keeps no results"}
	}
	if err := checkLimits(&limits, &cfg); err != nil {
		return nil, err
	}
	d := &Deduper{store: store, cfg: cfg, start: time.Now(), failures: !limits.NoFailures,
		oneWindow: limits.Window != 0}
	d.recycle = func([]driver.Answer) {}
	if s, ok := store.(driver.Recycler); ok {
		d.recycle = s.Recycle
	}
	d.life.Init()
	d.cache = newCache(&d.cfg, store, &d.life)
	d.coalesceCalls()
	d.renewals = newRenewer(d)
	d.wakes = newWakes(d)
	return d, nil
}

// Config returns the configuration in force, with the defaults filled in.
func (d *Deduper) Config() Config { return d.cfg }

// clock returns the monotonic time since New. It has a third of the bytes of a time.Time, and there
// are many claims. A claim whose lease began at first is valid until validFrom(first).
func (d *Deduper) clock() time.Duration { return time.Since(d.start) }

// at converts a reading of clock to a time, which has a monotonic reading.
func (d *Deduper) at(clock time.Duration) time.Time { return d.start.Add(clock) }

func (d *Deduper) validFrom(first time.Duration) time.Duration {
	return first + d.cfg.LeaseTTL - margin(d.cfg.LeaseTTL)
}

// checkStore refuses what could only fail later, in a goroutine of the Deduper: there a
// nil store would end the program.
func checkStore(field string, store Store) error {
	if store == nil {
		return &InputError{Field: field, Reason: "is nil"}
	}
	if isNil(store) {
		return &InputError{Field: field, Reason: fmt.Sprintf("is a nil %T", store)}
	}
	if m, ok := store.(*memoryStore); ok {
		return m.checkCapacity()
	}
	return nil
}

// isNil reports whether value is a nil pointer, map, func, slice or channel.
func isNil(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Slice, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// Lookup reads the record of a key, in one round trip; an absent key is a Record with
// StateAbsent and no error. It changes nothing.
func (d *Deduper) Lookup(ctx context.Context, key string, opts ...Option) (Record, error) {
	if err := d.check(ctx); err != nil {
		return Record{}, err
	}
	r := newRequest(key, opts)
	id, err := d.id(&r)
	if err != nil {
		return Record{}, err
	}
	if !d.life.Enter() {
		return Record{}, ErrClosed
	}
	defer d.life.Leave()
	ans := d.askRecord(ctx, id)
	if ans.Err != nil {
		d.storeError(id, ans.Err)
		return Record{}, unknown(ans.Err)
	}
	return ans.Record, nil
}

// Forget makes a key claimable again, for operators, also when it is uncertain: use it only if
// the effect may run again, and [Deduper.Mark] if not. A key under a live lease is refused with
// [ErrInFlight]. An owner from before the Forget can write nothing for Config.Hold, with one
// exception: a store may end a claim with Request.NoResult by a plain command. A copy of that
// command, which the network delivers late, makes the key done again; its effect has happened.
// Caches of other processes notice late: see Config.CacheBytes. It costs one round trip, or two in
// stores that notify those caches.
func (d *Deduper) Forget(ctx context.Context, key string, opts ...Option) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	r := newRequest(key, opts)
	id, err := d.id(&r)
	if err != nil {
		return err
	}
	if !d.life.Enter() {
		return ErrClosed
	}
	defer d.life.Leave()
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StoreTimeout)
	defer cancel()
	errs := d.store.Forget(ctx, []driver.ID{id}, d.cfg.Hold)
	// A claim attempt under way may have been answered before the store forgot: calls
	// that begin from now on must not be told its "done".
	d.inflight.Leave(id)
	d.cache.forget(id)
	switch {
	case len(errs) != 1:
		return fmt.Errorf("%w: store gave %d answers for one item", ErrUnknown, len(errs))
	case errs[0] == nil, errors.Is(errs[0], ErrInFlight):
		return errs[0]
	}
	d.storeError(id, errs[0])
	return unknown(errs[0])
}

// Close refuses new calls with [ErrClosed] and waits until running handlers, claims kept alive,
// and calls under way have ended. When ctx ends first, it cancels the contexts of the handlers that
// still run, with ErrClosed as cause, and returns an error that says how many calls or handlers
// were left. Their claims lapse, and their keys run again elsewhere. Claims that are already held
// can still be completed and released, also after Close. Close may be called again.
//
// While the store does not answer, a Deduper tries every second, for up to ten minutes, to
// release claims whose callers have gone. Close tries a last time.
func (d *Deduper) Close(ctx context.Context) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	d.life.Begin()
	go func() {
		defer d.life.End()
		<-d.life.Closing
		d.seekLast()
	}()
	left, drained := d.life.Close(ctx)
	if drained {
		return nil
	}
	d.renewals.close()
	return fmt.Errorf("dedup: closed with %d calls or handlers still running: %w", left,
		ctxend.Error(ctx))
}

// storeError reports an item the store could not answer. A caller that left is not the
// store's fault.
func (d *Deduper) storeError(id driver.ID, err error) {
	var left *coalesce.AbandonedError
	if !errors.As(err, &left) {
		fire(d.cfg.Observer.StoreError, Event{ID: id, Err: err})
	}
}

// idAttr returns how a key appears in logs: by its whole ID, under which its record can be looked
// up.
func idAttr(id driver.ID) slog.Attr { return slog.String("key_id", hex.EncodeToString(id[:])) }

// prepare checks the request and makes the store's form of it in req, without a token.
// Every field of req is written unless there is an error.
func (d *Deduper) prepare(r *Request, req *driver.ClaimRequest) error {
	id, err := d.id(r)
	if err != nil {
		return err
	}
	return d.prepareAs(id, r, req)
}

// prepareAs does the work of prepare for a request whose ID is known.
func (d *Deduper) prepareAs(id driver.ID, r *Request, req *driver.ClaimRequest) error {
	label := r.Label
	if label != "" {
		if err := checkText("Label", label, keytext.MaxLabel); err != nil {
			return err
		}
		if !d.cfg.Labels {
			label = ""
		}
	}
	window, err := d.window(r.Window)
	if err != nil {
		return err
	}
	*req = driver.ClaimRequest{
		ID: id, Lease: d.cfg.LeaseTTL, Hold: d.cfg.Hold, Window: window,
		ResultLimit: d.resultLimit(),
		Fingerprint: r.Fingerprint, Origin: r.Origin, Label: label,
		LikelyDuplicate:         r.LikelyDuplicate,
		TakeOverOlderGeneration: r.TakeOverOlderGeneration, OnlyNew: r.OnlyNew,
		NoResult: r.NoResult || d.cfg.SeenOnly,
	}
	return nil
}

// window returns the window of a request: own, or the Deduper's if own is 0.
func (d *Deduper) window(own time.Duration) (time.Duration, error) {
	bad := func(format string, args ...any) (time.Duration, error) {
		return 0, &InputError{Field: "Window", Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case own == 0 || own == d.cfg.Window:
		return d.cfg.Window, nil
	case own < d.cfg.LeaseTTL:
		return bad("is %v, shorter than Config.LeaseTTL (%v)", own, d.cfg.LeaseTTL)
	case own > d.cfg.Window: // what is sized for Config.Window, such as a filter, would forget
		return bad("is %v, longer than Config.Window (%v)", own, d.cfg.Window)
	case d.oneWindow:
		return bad("is %v; its store has one window for all keys, %v", own, d.cfg.Window)
	}
	return own, nil
}

// resultLimit bounds the result that an attempt sends to the store, in bytes.
func (d *Deduper) resultLimit() int {
	if d.cfg.SeenOnly {
		return 0
	}
	return d.cfg.ResultLimit
}

// id checks key and scope and digests them.
func (d *Deduper) id(r *Request) (driver.ID, error) {
	if r.Scope != "" {
		if err := checkText("Scope", r.Scope, keytext.MaxKey); err != nil {
			return driver.ID{}, err
		}
	}
	if err := checkKey(r.Key); err != nil {
		return driver.ID{}, err
	}
	return keytext.Digest(d.cfg.Namespace, r.Scope, r.Key), nil
}

// check refuses a nil Deduper or context with an error instead of a panic far inside.
func (d *Deduper) check(ctx context.Context) error {
	switch {
	case d == nil:
		return &InputError{Field: "Deduper", Reason: "is nil"}
	case ctx == nil:
		return &InputError{Field: "Context", Reason: "is nil"}
	}
	return nil
}

// ended wakes the callers that wait for the key. It also keeps new callers from sharing an
// attempt that may have been answered before the end.
func (d *Deduper) ended(id driver.ID) {
	d.inflight.Leave(id)
	d.waiters.Wake(id)
}

// endedBy calls ended, and notifies other processes if the store has written the end.
func (d *Deduper) endedBy(id driver.ID, ans *driver.Answer) {
	d.ended(id)
	if ans.Written {
		d.wakes.notify(id)
	}
}
