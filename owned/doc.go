// Package owned lets the owner of a partition run new keys without a claim for each.
package owned
