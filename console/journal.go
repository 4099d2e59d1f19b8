package console

import (
	"sync"
	"time"
)

// maxJournal is how many changes are remembered, and maxEntries how many a page shows.
const (
	maxJournal = 1000
	maxEntries = 20
)

// entry is a change that somebody has made here.
type entry struct {
	ID, Name, Who, At, Did string
}

// Short is the same as for listed.
func (e entry) Short() string { return e.ID[:8] }

// journal keeps the newest changes of this Console, for its pages. It is lost when the program
// ends, but the log has all changes.
type journal struct {
	mu  sync.Mutex
	all []entry // the oldest first
}

func (j *journal) add(ch *change, id, did string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.all) == maxJournal {
		j.all = j.all[1:]
	}
	l := listedOf(ch.id, &ch.was)
	j.all = append(j.all, entry{ID: id, Name: l.Name, Who: ch.who, Did: did,
		At: time.Now().UTC().Format(instant)})
}

// newest returns the newest changes of one key, or of all keys, with the newest first.
func (j *journal) newest(id string) (entries []entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.all) - 1; i >= 0 && len(entries) < maxEntries; i-- {
		if id == "" || j.all[i].ID == id {
			entries = append(entries, j.all[i])
		}
	}
	return entries
}
