// Package guard notices that a server has lost data, which the server cannot say itself. It looks
// at canaries that must be there after every claim, at the identity of servers behind new
// connections, and at the number of keys that they have evicted.
package guard
