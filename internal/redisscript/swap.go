package redisscript

// Swap replaces the value of a key that nobody else has changed.
var Swap = loadAfter("swap")

// AnswerSwapped is the answer of [Swap] when the key has the new value. Otherwise the Reply's
// Record is the value that it has.
const AnswerSwapped = "swapped"

// NewSwap puts value in place of old, or where nothing is when that is empty.
func NewSwap(key, old, value string) Call {
	return Call{Script: Swap, Key: key, Args: []any{old, value}}
}
