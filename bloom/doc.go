// Package bloom tells which ids are certainly new, by a Bloom filter that knows what it was told.
//
// A Bloom filter has no false negatives, but of what was never added to it it knows nothing: one that
// was emptied, or restarted, or that sees the marks of one process out of three, denies ids that
// others have marked. So this one answers ProvenNew only while a [Feed] vouches that every mark within
// the window was fed to it, generation by generation, and until when that holds. In every other case
// the answer is Unknown and says why. Maybe never means duplicate: ask the store.
//
//	f, err := bloom.New(bloom.Options{Window: 6 * time.Hour, Rate: 500})
//	feed, err := f.Rebuild(ctx, bloom.Source{Name: "orders"}, scan, nil) // what the store has
//	err = feed.Open(leaseEnd)                                            // nobody else writes until then
//	switch answer, _ := f.Check(id); answer {
//	case bloom.ProvenNew: // no need to ask the store
//		f.Add(id) // first
//		mark(id)  // then
//	default: // Maybe, Unknown: ask it
//	}
//
// # Batches
//
// Who has many ids at once, as a consumer of a partition has, asks [Filter.WhereAll]: it takes half
// the time of as many calls of [Filter.Where], because memory is waited for once for many ids.
//
//	batch := make([]bloom.Query, len(requests)) // kept from batch to batch
//	for i := range requests {
//		batch[i].ID = requests[i].ID
//	}
//	oldest := f.WhereAll(batch)
//	for i, q := range batch {
//		switch q.Answer { // q.In: bit i is generation oldest+i
//		case bloom.ProvenNew: // unless the same id was in the batch before
//		}
//	}
//
// Neither reads the clock: whether the time given to [Feed.Open] is over, the caller compares, once a
// batch, before it asks and when it grants.
//
// # Time
//
// Ids are kept in generations, slices of the window. One is dropped when the whole window and one
// more slice have passed since its end by Options.Clock, and the index of the newest never goes
// back: a clock that stands or is set back makes the filter forget later, never earlier.
//
// # Order
//
// Add before the effect and before the mark is sent. Added after it, there is a moment in which the
// store has a mark that the filter denies.
//
// # Load
//
// More ids than planned make Maybe more frequent and New rarer, and New stays proven. The rate is
// estimated from the bits that are set; a generation that is too full gets another layer, and where
// Options.MaxBytes forbids it a hit becomes Unknown(Saturated).
//
// # Attack
//
// Ids are hashed with SipHash-2-4 under a secret. Whoever does not know it cannot choose ids that
// make another one Maybe.
package bloom
