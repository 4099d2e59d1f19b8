package dedup

// Completion is one item of [Deduper.CompleteBatch].
type Completion struct {
	// Claim that ends.
	Claim *Claim
	// Result to keep, when Err is nil.
	Result []byte
	// Err of the handler: nil completes, one for which IsPermanent is true fails, any
	// other releases the claim; see [NotBegun] for one that has declared [Danger].
	Err error
	// With is for the store, and is written together with the record or not at all. The
	// store that offers it says which values it takes. A store that does not know it refuses
	// the item with an [*InputError] and writes nothing. Only where Err is nil. Default nil.
	With any
	// Unused says that the handler never began the message, or was cut short through no fault
	// of the message. The claim is released, whatever Err is, and does not count as an attempt.
	// Callers that claim ahead release the claims that they did not begin with it: otherwise
	// messages that no handler has seen would use up their attempts. (An attempt is counted
	// when claiming: one whose process dies has counted.) A key that was dangerous before is
	// uncertain again; Danger by the attempt itself, a Result or With is an [*InputError].
	// Default false.
	Unused bool
	// InTime says that the handler had returned nil before its claim was lost: whoever
	// ends claims in batches may learn of the loss in between. Without it the effect of such
	// a claim counts as canceled, and is not recorded. Only where Err is nil. Default false.
	InTime bool
	// noResult marks a result that could not be encoded.
	noResult bool
}

// checkUnused refuses what contradicts Completion.Unused.
func (c *Claim) checkUnused(item *Completion) error {
	if !item.Unused {
		return nil
	}
	var reason string
	switch {
	case item.Result != nil:
		reason = "is set, and so is Result"
	case item.With != nil:
		reason = "is set, and so is With"
	case c.declared.Load():
		reason = "is set, and the attempt has declared Danger"
	default:
		return nil
	}
	return &InputError{Field: "Completion.Unused", Reason: reason}
}
