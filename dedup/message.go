package dedup

import "github.com/onceward/onceward/dedup/driver"

// message is the part of a message that its claim keeps: the end of the claim repeats it, and
// a second caller of the key is compared with it.
type message struct {
	origin      driver.Origin
	label       string
	fingerprint driver.Fingerprint
}

// noMessage is for a request that says nothing about its message, like most requests that do
// not come from a broker. Nobody writes into it.
var noMessage message

// about reports whether the request says anything of its message.
func about(r *driver.ClaimRequest) bool {
	return r.Origin != (driver.Origin{}) || r.Label != "" || r.Fingerprint != (driver.Fingerprint{})
}

// messageOf returns what a claim keeps of r.
func messageOf(r *driver.ClaimRequest) *message {
	if !about(r) {
		return &noMessage
	}
	return &message{r.Origin, r.Label, r.Fingerprint}
}

// messages makes the messages of a batch in one allocation, or in none if no request has any.
type messages struct {
	slab []message
	left int // requests to come
}

func (m *messages) next(r *driver.ClaimRequest) *message {
	m.left--
	if !about(r) {
		return &noMessage
	}
	if m.slab == nil {
		m.slab = make([]message, 0, m.left+1)
	}
	m.slab = append(m.slab, message{r.Origin, r.Label, r.Fingerprint})
	return &m.slab[len(m.slab)-1]
}
