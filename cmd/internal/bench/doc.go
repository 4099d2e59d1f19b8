// Package bench measures how many messages a second a Redis, or a database, takes through this
// library, beside the same writes without it: `onceward bench`. What it writes has a name of its
// own, and is removed when it ends.
package bench
