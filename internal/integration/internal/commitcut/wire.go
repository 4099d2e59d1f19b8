package commitcut

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// wire reads the protocol of one connection, which is not encrypted.
type wire interface {
	// request reads the client's next message. commits reports that the message makes the server
	// commit, and answered that the server replies once it has the message. With pipelining these
	// are two messages.
	request(r *bufio.Reader) (message []byte, commits, answered bool, err error)
	// reply reads the server's next message. ready reports that the server waits for a request
	// after this reply.
	reply(r *bufio.Reader) (message []byte, ready bool, err error)
}

// commits reports whether the last statement of a text is COMMIT.
func commits(text string) bool {
	text = strings.TrimRight(text, "; \n\x00")
	return strings.EqualFold(strings.TrimSpace(text[strings.LastIndexByte(text, ';')+1:]), "commit")
}

// postgresWire reads version 3 of PostgreSQL's protocol: a type of one byte, then a length
// that counts itself. Only the client's first message has no type.
type postgresWire struct {
	started    bool
	statements map[string]bool // prepared ones, and whether they commit
	portals    map[string]bool
	committing bool
}

func newPostgresWire() wire {
	return &postgresWire{statements: map[string]bool{}, portals: map[string]bool{}}
}

func (w *postgresWire) request(r *bufio.Reader) (message []byte, commits, answered bool,
	err error) {
	typed := 1
	if !w.started {
		typed, w.started = 0, true
	}
	message, err = framed(r, typed+4, func(head []byte) int {
		return int(binary.BigEndian.Uint32(head[typed:])) - 4
	})
	if err == nil && typed == 0 && Cancels(message) {
		err = errCancels
	}
	if err != nil || typed == 0 {
		return message, false, false, err
	}
	commits, answered = w.see(message[0], message[5:])
	return message, commits, answered, nil
}

// errCancels ends a connection that was made to cancel what another one does. pgx makes one
// whenever it gives up a connection, and whether it comes before the COMMIT of that one is a
// race: a client that crashes, or whose network is gone, sends none.
var errCancels = errors.New("a request to cancel")

// Cancels reports whether the first message of a connection to PostgreSQL is a request to cancel.
func Cancels(message []byte) bool {
	const code = 80877102
	return len(message) >= 8 && binary.BigEndian.Uint32(message[4:]) == code
}

// see follows prepared statements to where they are executed.
func (w *postgresWire) see(kind byte, body []byte) (commit, answered bool) {
	fields := strings.SplitN(string(body), "\x00", 3)
	switch kind {
	case 'Q':
		return commits(fields[0]), commits(fields[0])
	case 'P': // statement, text
		w.statements[fields[0]] = commits(fields[1])
	case 'B': // portal, statement
		w.portals[fields[0]] = w.statements[fields[1]]
	case 'E': // portal
		w.committing = w.committing || w.portals[fields[0]]
		return w.portals[fields[0]], false
	case 'S':
		defer func() { w.committing = false }()
		return false, w.committing
	}
	return false, false
}

func (w *postgresWire) reply(r *bufio.Reader) (message []byte, ready bool, err error) {
	message, err = framed(r, 5, func(head []byte) int {
		return int(binary.BigEndian.Uint32(head[1:])) - 4
	})
	return message, err == nil && message[0] == 'Z', err
}

// mysqlWire reads packets of MySQL's protocol: a length of three bytes and a number that
// each command begins at zero.
type mysqlWire struct{}

func newMySQLWire() wire { return mysqlWire{} }

func (mysqlWire) request(r *bufio.Reader) (message []byte, commit, answered bool, err error) {
	const query = 3
	message, err = packet(r)
	commit = err == nil && message[3] == 0 && len(message) > 5 && message[4] == query &&
		commits(string(message[5:]))
	return message, commit, commit, err
}

// reply: the answer to COMMIT is one packet.
func (mysqlWire) reply(r *bufio.Reader) (message []byte, ready bool, err error) {
	message, err = packet(r)
	return message, err == nil, err
}

func packet(r *bufio.Reader) ([]byte, error) {
	return framed(r, 4, func(head []byte) int {
		return int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	})
}

// framed reads a head, and the body whose length stands in it.
func framed(r *bufio.Reader, head int, length func(head []byte) int) ([]byte, error) {
	message := make([]byte, head)
	if _, err := io.ReadFull(r, message); err != nil {
		return nil, err
	}
	n := length(message)
	if n < 0 {
		return nil, errors.New("a message of negative length")
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return nil, err
	}
	return append(message, body.Bytes()...), nil
}
