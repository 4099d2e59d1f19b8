package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// mailbox stands for a mail server: a file with a line for each mail that went out. It does not
// look for duplicates.
type mailbox struct {
	mu      sync.Mutex
	file    *os.File
	mails   int
	orders  map[string]bool // those that have had a mail
	want    int
	arrived chan struct{} // closed when want orders have had one
}

func openMailbox(path string) (*mailbox, error) {
	sent, err := os.ReadFile(path) // what an earlier process has sent
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	b := &mailbox{file: f, orders: map[string]bool{}}
	for order := range strings.Lines(string(sent)) {
		b.note(strings.TrimSpace(order))
	}
	return b, nil
}

func (b *mailbox) close() error { return b.file.Close() }

func (b *mailbox) send(order string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := fmt.Fprintln(b.file, order); err != nil {
		return err
	}
	b.note(order)
	if b.mails <= 3 {
		fmt.Printf("mail: your order %s is booked\n", order)
	}
	return nil
}

func (b *mailbox) note(order string) {
	b.mails++
	b.orders[order] = true
	b.look()
}

func (b *mailbox) look() {
	if b.arrived != nil && len(b.orders) >= b.want {
		close(b.arrived)
		b.arrived = nil
	}
}

// reached returns a channel that is closed when this many orders have had a mail. It may be called
// once.
func (b *mailbox) reached(orders int) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	arrived := make(chan struct{})
	b.want, b.arrived = orders, arrived
	b.look()
	return arrived
}

// count returns how many orders have had a mail, and how many mails there were.
func (b *mailbox) count() (orders, mails int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.orders), b.mails
}
