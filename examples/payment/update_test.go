package main

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// put sends an update with a condition and a key. "" means none.
func (s *shop) put(ifMatch, key, note string) reply {
	s.Helper()
	var header []string
	if ifMatch != "" {
		header = append(header, "If-Match", ifMatch)
	}
	if key != "" {
		header = append(header, "Idempotency-Key", fmt.Sprintf("%q", key))
	}
	return s.send(http.MethodPut, "/account/note", "alice", fmt.Sprintf(`{"note":%q}`, note),
		header...)
}

func (s *shop) wantReply(what string, got reply, status int, etag string, replayed bool) {
	s.Helper()
	if got.status != status || got.etag != etag || got.replayed != replayed {
		s.Errorf("%s: %+v; want %d, ETag %s, replayed: %v", what, got, status, etag, replayed)
	}
}

// wantNote checks alice's note and its version. The first version is 1.
func (s *shop) wantNote(want string, version int64) {
	s.Helper()
	var note string
	var got int64
	if err := s.db.QueryRowContext(s.Context(),
		`SELECT note, version FROM account WHERE id = 'alice'`).Scan(&note, &got); err != nil ||
		note != want || got != version {
		s.Errorf("the note is %q of version %d, %v; want %q of %d", note, got, err, want, version)
	}
}

func TestConditionalUpdate(t *testing.T) {
	forEach(t, func(s *shop) {
		s.wantReply("read", s.send(http.MethodGet, "/account", "alice", ""), 200, `"1"`, false)
		for _, key := range []string{"", "k"} { // a 428 is not kept: its key is free
			s.wantReply("without If-Match, key "+key, s.put("", key, "x"), 428, "", false)
		}
		s.wantReply("of any version", s.put("*", "", "x"), 428, "", false)
		s.wantReply("a weak ETag", s.put(`W/"1"`, "", "x"), 412, "", false)
		s.wantReply("what begins like it", s.put(`"10"`, "", "x"), 412, "", false)
		s.wantNote("", 1)
		s.wantReply("with what was read", s.put(`"1"`, "k", "rent"), 204, `"2"`, false)
		s.wantReply("with what is old", s.put(`"1"`, "", "x"), 412, "", false)
		s.wantReply("with a list", s.put(`"7", "2"`, "", "food"), 204, `"3"`, false)
		s.wantNote("food", 3)
		for what, path := range map[string]string{http.MethodGet: "/account",
			http.MethodPut: "/account/note"} {
			if r := s.send(what, path, "mallory", `{"note":"x"}`, "If-Match",
				`"3"`); r.status != 401 {
				s.Errorf("nobody's %s: %+v", what, r)
			}
		}
	})
}

// The first answer is lost, and the client's transport repeats the update.
func TestConditionalUpdateLostAnswer(t *testing.T) {
	forEach(t, func(s *shop) {
		s.lose.Store(1)
		s.wantReply("with a key", s.put(`"1"`, "k1", "rent"), 204, `"2"`, true)
		s.wantNote("rent", 2)
		// Without a key it is also written once. But the client gets the answer that another
		// client has written.
		s.lose.Store(1)
		s.wantReply("without", s.put(`"2"`, "", "food"), 412, "", false)
		s.wantNote("food", 3)
		if s.lose.Load() != 0 {
			s.Error("no answer was lost")
		}
	})
}

// Others have written when a key is sent again. The answer is the first one, with its ETag.
func TestConditionalUpdateReplay(t *testing.T) {
	forEach(t, func(s *shop) {
		s.wantReply("first", s.put(`"1"`, "k1", "rent"), 204, `"2"`, false)
		s.wantReply("somebody else", s.put(`"2"`, "", "food"), 204, `"3"`, false)
		s.wantReply("again", s.put(`"1"`, "k1", "rent"), 204, `"2"`, true)
		s.wantNote("food", 3)
		// A refusal is also final. A client that has read again makes another update, and must not
		// use the old key for it.
		s.wantReply("too late", s.put(`"2"`, "k2", "heat"), 412, "", false)
		s.wantReply("too late, again", s.put(`"2"`, "k2", "heat"), 412, "", true)
		s.wantReply("another condition under its key", s.put(`"3"`, "k2", "heat"), 422, "", false)
		s.wantReply("another note under its key", s.put(`"2"`, "k2", "light"), 422, "", false)
		s.wantReply("with a key of its own", s.put(`"3"`, "k3", "heat"), 204, `"4"`, false)
		s.wantNote("heat", 4)
	})
}

// Many clients have read one version, and write at once, each twice. Only one of them succeeds.
func TestConditionalUpdatesAtOnce(t *testing.T) {
	forEach(t, func(s *shop) {
		const clients = 10
		replies := make([][2]reply, clients)
		var wg sync.WaitGroup
		for i := range replies {
			for j := range replies[i] {
				key := fmt.Sprint(i)
				if i%2 == 1 { // without a key both are executed, and at most one of them writes
					key = ""
				}
				wg.Go(func() { replies[i][j] = s.put(`"1"`, key, fmt.Sprint(i)) })
			}
		}
		wg.Wait()
		first, note := 0, ""
		for i, pair := range replies {
			for _, r := range pair {
				switch {
				case r.status == 204 && r.etag == `"2"`:
					note = fmt.Sprint(i)
					if !r.replayed {
						first++
					}
				case r.status != 412:
					s.Errorf("client %d: %+v", i, r)
				}
			}
			if i%2 == 0 && (pair[0].status != pair[1].status ||
				pair[0].replayed == pair[1].replayed) {
				s.Errorf("client %d has sent one update twice, and was told %+v and %+v",
					i, pair[0], pair[1])
			}
		}
		if first != 1 {
			s.Errorf("%d have written", first)
		}
		s.wantNote(note, 2)
	})
}
