package script

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// headVersion is the version of head that the scripts know.
const headVersion = "1"

// State is what head holds, for a caller that reads it with HGETALL.
type State struct {
	Epoch, MapVersion, Seq, Fence, Forgets uint64
	// Since is the first epoch of the ownership that Epoch belongs to. A batch that was begun in
	// this epoch or a later one is alive as long as the partition is held.
	Since uint64
	// Generation of the consumer group whose member owns or owned the partition.
	Generation int32
	// SharedUntil is a time since 1970.
	SharedUntil time.Duration
	// Gen is the newest generation.
	Gen int64
	// Lost says that members were lost.
	Lost bool
	Gens map[int64]Gen
}

// Gen is what head holds about a generation.
type Gen struct {
	// Newest is the newest fresh set, and Folded the last one that was folded; the sets after it
	// are not folded. 0: none.
	Newest, Folded uint64
	// Fresh is the number of members in the fresh sets that are not folded, and Kept the number in
	// the buckets. Either may be negative if Lost was removed from head. In any case, their sum is
	// the least number of members that are there.
	Fresh, Kept int64
}

// ReadHead reads the fields of head. If there are no fields, there is no head, and ReadHead returns
// nil.
func ReadHead(fields map[string]string) (*State, error) {
	if len(fields) == 0 {
		return nil, nil //nolint:nilnil // no head is no error
	}
	if v := fields["version"]; v != headVersion {
		return nil, fmt.Errorf("%w: a head of version %.10q", ErrUnreadable, v)
	}
	h := &State{Gens: make(map[int64]Gen)}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := h.set(name, fields[name]); err != nil {
			return nil, fmt.Errorf("%w: head has %.40q: %.40q", ErrUnreadable, name, fields[name])
		}
	}
	return h, nil
}

// set reads one field. It ignores unknown fields, which a later version may have.
func (h *State) set(name, value string) error {
	name, of, perGen := strings.Cut(name, ":")
	if perGen {
		return h.setGen(name, of, value)
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	for field, to := range map[string]*uint64{
		"epoch": &h.Epoch, "since": &h.Since, "mapver": &h.MapVersion, "seq": &h.Seq,
		"fence": &h.Fence, "forgets": &h.Forgets,
	} {
		if field == name {
			*to = uint64(v) // the scripts count from 0
		}
	}
	switch name {
	case "generation":
		h.Generation = int32(v) // written from an int32
	case "shared":
		h.SharedUntil = FromMillis(v)
	case "g":
		h.Gen = v
	case "lost":
		h.Lost = v != 0
	}
	return nil
}

func (h *State) setGen(name, of, value string) error {
	gen, err := strconv.ParseInt(of, 10, 64)
	if err != nil {
		return err
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	g := h.Gens[gen]
	switch name {
	case "new":
		g.Newest = uint64(v) // the scripts count from 0
	case "fold":
		g.Folded = uint64(v) // the scripts count from 0
	case "fresh":
		g.Fresh = v
	case "kept":
		g.Kept = v
	}
	h.Gens[gen] = g
	return nil
}

// ReadMembers reads the members of a bucket, where a member may occur more than once, or one member
// of a fresh set.
func ReadMembers(blob string) ([]int64, error) {
	if len(blob)%8 != 0 {
		return nil, fmt.Errorf("%w: members of %d bytes", ErrUnreadable, len(blob))
	}
	members := make([]int64, 0, len(blob)/8)
	for b := []byte(blob); len(b) > 0; b = b[8:] {
		members = append(members, int64(binary.BigEndian.Uint64(b))) // 64 bits either way
	}
	return members, nil
}

// Begun is a begun batch that is on record.
type Begun struct {
	Name  string
	Epoch uint64
	// At is the server's time when the batch began, as the time since 1970.
	At  time.Duration
	IDs []int64
}

// ReadRun reads the fields of run, in the order of their names.
func ReadRun(fields map[string]string) ([]Begun, error) {
	var all []Begun
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		epoch, _, named := strings.Cut(name, ":")
		e, err := strconv.ParseUint(epoch, 10, 64)
		blob := []byte(fields[name])
		if !named || err != nil || len(blob) < 8 || len(blob)%8 != 0 {
			return nil, fmt.Errorf("%w: run has %.60q of %d bytes", ErrUnreadable, name, len(blob))
		}
		clock := int64(binary.BigEndian.Uint64(blob))
		b := Begun{Name: name, Epoch: e, At: FromMillis(clock)}
		for at := 8; at < len(blob); at += 8 {
			b.IDs = append(b.IDs, int64(binary.BigEndian.Uint64(blob[at:]))) // 64 bits either way
		}
		all = append(all, b)
	}
	return all, nil
}
