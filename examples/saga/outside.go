package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

var (
	errDeclined = errors.New("declined")
	errRefused  = errors.New("the airline refuses")
	errNoAnswer = errors.New("no answer")
)

// bank takes money, and gives it back, each time that it is told to, because it ignores keys when
// it charges. But a client can ask it for the charge of a key.
type bank struct {
	mu      sync.Mutex
	byKey   map[string]string // receipts of charges
	charges int
	refunds int
	decline bool // declines every charge
	lose    int  // how many answers are lost after the charge has happened
}

func (b *bank) charge(_ context.Context, key string, _ int64) (receipt string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decline {
		return "", errDeclined
	}
	b.charges++
	receipt = fmt.Sprintf("receipt-%d", b.charges)
	b.byKey[key] = receipt
	if b.lose--; b.lose >= 0 {
		return "", errNoAnswer
	}
	return receipt, nil
}

func (b *bank) find(_ context.Context, key string) (receipt string, found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	receipt, found = b.byKey[key]
	return receipt, found, nil
}

func (b *bank) refund(_ context.Context, _, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunds++
	return nil
}

// airline has one effect for a key, like most services that accept keys.
type airline struct {
	mu      sync.Mutex
	tickets map[string]string
	refuse  bool // refuses every ticket
	lose    int  // how many answers are lost after the ticket was issued
}

func (a *airline) issue(_ context.Context, key, flight string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse {
		return "", errRefused
	}
	if a.tickets[key] == "" {
		a.tickets[key] = fmt.Sprintf("%s-%03d", flight, len(a.tickets)+1)
	}
	if a.lose--; a.lose >= 0 {
		return "", errNoAnswer
	}
	return a.tickets[key], nil
}
