// Package bloom is a Bloom filter that can prove that an id has not been seen.
//
// A Bloom filter has no false negatives for the ids that were added to it. But it knows nothing of
// ids that were never added. A filter that was emptied or restarted, or that sees the marks of one
// process out of three, denies ids that others have marked. So this filter answers ProvenNew only
// while a [Feed] vouches, generation by generation, that every mark within the window was fed to
// the filter. The Feed also says until when that holds. In every other case the answer is Unknown
// and says why. Maybe never means duplicate: ask the store.
//
// To spare the lookups of a store, give the filter to package [layered], and call [Filter.Follow].
// For a program that owns a store alone:
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
// A caller that has many ids at once, such as the consumer of a partition, asks [Filter.WhereAll].
// It takes half the time of as many calls of [Filter.Where], because the waits for memory overlap.
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
// Neither method reads the clock. The caller compares the clock with the time given to [Feed.Open]:
// once per batch before it asks, and again when it grants.
//
// # Time
//
// Ids are kept in generations, slices of the window. A generation is dropped when the whole window
// and one more slice have passed since its end by Options.Clock. The index of the newest generation
// never goes back, so a clock that stops or is set back makes the filter forget later, never
// earlier.
//
// # Order
//
// Add before the effect and before the mark is sent. If it is added later, there is a moment in
// which the store has a mark that the filter denies.
//
// # Load
//
// More ids than planned make Maybe more frequent and New rarer, but New stays proven. The rate is
// estimated from the bits that are set; a generation that is too full gets another layer, and where
// Options.MaxBytes forbids it a hit becomes Unknown(Saturated).
//
// # Attack
//
// Ids are hashed with SipHash-2-4 under a secret. An attacker who does not know the secret cannot
// choose ids that make another id Maybe.
//
// [layered]: https://pkg.go.dev/github.com/onceward/onceward/dedup/layered
package bloom
