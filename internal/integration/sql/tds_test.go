package sql_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// The part of TDS ("[MS-TDS]"), the protocol of SQL Server, that go-mssqldb needs to talk to a
// player instead of a server.

// tdsRequest is what a client has sent.
type tdsRequest struct {
	kind byte
	// text of a statement, the declarations of its parameters, and their values: int64, []byte
	// or nil.
	text, declared string
	args           []any
	// manager is the request to the transaction manager: 5 to begin, 7 to commit, 8 to roll back.
	manager uint16
	// transaction is the one that the client believes it is in.
	transaction uint64
	reset       bool
}

const (
	tdsBatch, tdsRPC, tdsAttention, tdsManager, tdsLogin, tdsPrelogin = 0x01, 0x03, 0x06,
		0x0e, 0x10, 0x12
	tdsBegin, tdsCommit, tdsRollback = 5, 7, 8
	// The end of a statement says: there is more, it has failed, it has counted rows, or it
	// answers an attention.
	tdsMore, tdsFailed, tdsCounted, tdsAttended = 0x1, 0x2, 0x10, 0x20
)

// tdsSession answers the requests of one connection. No answer closes the connection.
type tdsSession interface {
	answer(tdsRequest) []byte
	ended()
}

// listenTDS serves until the test ends, and returns the source name of the database.
func listenTDS(t *testing.T, open func() tdsSession) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serveTDS(conn, open()) })
		}
	})
	return fmt.Sprintf("sqlserver://%s?encrypt=disable&dial+timeout=5&protocol=tcp",
		listener.Addr())
}

func serveTDS(conn net.Conn, s tdsSession) {
	defer func() { _ = conn.Close(); s.ended() }()
	r := bufio.NewReader(conn)
	for {
		request, err := readTDS(r)
		if err != nil {
			return
		}
		var answer []byte
		switch request.kind {
		case tdsPrelogin:
			// Its version, no encryption, the end of the list; and the two values.
			answer = []byte{0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 16, 0, 0, 0, 0, 0, 2}
		case tdsLogin:
			answer = append(tdsToken(0xad, append([]byte{1, 0x74, 0, 0, 4, 0}, 16, 0, 0, 0)),
				tdsDone(0xfd, 0, 0)...)
		case tdsAttention: // for a request that has been answered by now
			answer = tdsDone(0xfd, tdsAttended, 0)
		default:
			answer = s.answer(request)
		}
		if answer == nil {
			return
		}
		if _, err := conn.Write(tdsPackets(answer)); err != nil {
			return
		}
	}
}

// readTDS reads a message, which may be several packets.
func readTDS(r io.Reader) (request tdsRequest, err error) {
	var message []byte
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return request, err
		}
		const last, reset = 0x01, 0x08
		request.kind = head[0]
		request.reset = request.reset || head[1]&reset != 0
		part := make([]byte, binary.BigEndian.Uint16(head[2:])-8)
		if _, err := io.ReadFull(r, part); err != nil {
			return request, err
		}
		message = append(message, part...)
		if head[1]&last != 0 {
			return request, request.parse(message)
		}
	}
}

func (q *tdsRequest) parse(message []byte) error {
	if q.kind == tdsPrelogin || q.kind == tdsLogin || q.kind == tdsAttention {
		return nil
	}
	// All headers: of the transaction there is one, of 18 bytes.
	q.transaction = binary.LittleEndian.Uint64(message[10:])
	body := bytes.NewReader(message[binary.LittleEndian.Uint32(message):])
	switch q.kind {
	case tdsBatch:
		text, err := io.ReadAll(body)
		q.text = fromUCS2(text)
		return err
	case tdsManager:
		return binary.Read(body, binary.LittleEndian, &q.manager)
	case tdsRPC:
		return q.parseCall(body)
	}
	return fmt.Errorf("a message of type %#x", q.kind)
}

// parseCall reads a call of sp_executesql: statement, declarations, and the parameters.
func (q *tdsRequest) parseCall(r *bytes.Reader) error {
	var head struct{ ByNumber, Number, Flags uint16 }
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil || head.ByNumber != 0xffff ||
		head.Number != 10 {
		return fmt.Errorf("a call of %v, %w", head, err)
	}
	var values []any
	for r.Len() > 0 {
		name, _ := r.ReadByte()
		_, _ = r.Seek(2*int64(name)+1, io.SeekCurrent) // the name, and the flags
		value, err := parseValue(r)
		if err != nil {
			return err
		}
		values = append(values, value)
	}
	q.text, q.declared = fromUCS2(values[0].([]byte)), fromUCS2(values[1].([]byte)) //nolint:forcetypeassert // or the test ends
	q.args = values[2:]
	return nil
}

func parseValue(r *bytes.Reader) (any, error) {
	const null, intN, varbinary, nvarchar = 0x1f, 0x26, 0xa5, 0xe7
	kind, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	switch kind {
	case null:
		return nil, nil //nolint:nilnil // the value
	case intN:
		var v struct {
			Max, Size uint8
			Value     int64
		}
		err := binary.Read(r, binary.LittleEndian, &v)
		return v.Value, err
	case varbinary, nvarchar:
		var size uint16
		_ = binary.Read(r, binary.LittleEndian, &size)
		if kind == nvarchar {
			_, _ = r.Seek(5, io.SeekCurrent) // the collation
		}
		return parseBytes(r, size == 0xffff)
	}
	return nil, fmt.Errorf("a parameter of type %#x", kind)
}

// parseBytes reads a length and the bytes, or, when they may be long, chunks with lengths.
func parseBytes(r *bytes.Reader, long bool) ([]byte, error) {
	if !long {
		var n uint16
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
			return nil, err
		}
		value := make([]byte, n)
		_, err := io.ReadFull(r, value)
		return value, err
	}
	_, _ = r.Seek(8, io.SeekCurrent) // of all chunks together, which is not known
	value := []byte{}
	for {
		var n uint32
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil || n == 0 {
			return value, err
		}
		part := make([]byte, n)
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		value = append(value, part...)
	}
}

func fromUCS2(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

func toUCS2(s string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return b
}

// tdsPackets cuts an answer into packets.
func tdsPackets(answer []byte) (packets []byte) {
	for first := true; first || len(answer) > 0; first = false {
		part := answer[:min(len(answer), 4000)]
		answer = answer[len(part):]
		var last byte
		if len(answer) == 0 {
			last = 1
		}
		packets = append(packets, 4, last)
		packets = binary.BigEndian.AppendUint16(packets, uint16(len(part)+8)) // at most 4008
		packets = append(append(packets, 0, 0, 1, 0), part...)
	}
	return packets
}

// tdsToken is one with a length.
func tdsToken(kind byte, body []byte) []byte {
	size := uint16(len(body)) // some hundred
	return append(binary.LittleEndian.AppendUint16([]byte{kind}, size), body...)
}

// tdsDone ends a statement (0xfd), a procedure (0xfe), or a statement in one (0xff).
func tdsDone(kind byte, status uint16, rows int64) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{kind}, status)
	return binary.LittleEndian.AppendUint64(append(b, 0, 0), uint64(rows)) // not negative
}

// tdsMessage is an error (0xaa), or information (0xab).
func tdsMessage(kind byte, number int32, class byte, text string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(number))                   // not negative
	b = binary.LittleEndian.AppendUint16(append(b, 1, class), uint16(len(text))) // some hundred
	return tdsToken(kind, append(append(b, toUCS2(text)...), 0, 0, 0, 0, 0, 0))
}

// tdsEnv tells the client that a transaction has begun (8), was committed (9) or rolled back (10).
func tdsEnv(kind byte, transaction uint64) []byte {
	id := binary.LittleEndian.AppendUint64([]byte{8}, transaction)
	if kind == 8 {
		return tdsToken(0xe3, append(append([]byte{kind}, id...), 0))
	}
	return tdsToken(0xe3, append([]byte{kind, 0}, id...))
}

// tdsRows are columns of int64 and of []byte or nil, as their first row has them.
func tdsRows(kinds string, rows ...[]any) (b []byte) {
	b = binary.LittleEndian.AppendUint16([]byte{0x81}, uint16(len(kinds))) // six
	for _, kind := range kinds {
		b = append(b, 0, 0, 0, 0, 1, 0)
		if kind == 'i' {
			b = append(b, 0x26, 8)
		} else {
			b = append(b, 0xa5, 0x40, 0x1f) // 8000 bytes
		}
		b = append(b, 0) // no name
	}
	for _, row := range rows {
		b = append(b, 0xd1)
		for _, value := range row {
			switch value := value.(type) {
			case int64:
				b = binary.LittleEndian.AppendUint64(append(b, 8), uint64(value)) // its bits
			case []byte:
				if value == nil {
					b = append(b, 0xff, 0xff)
					continue
				}
				size := uint16(len(value)) // some ten
				b = append(binary.LittleEndian.AppendUint16(b, size), value...)
			}
		}
	}
	return b
}
