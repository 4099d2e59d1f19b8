package sqladapter

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
)

// IDTime is a kind of ids that carry the time at which they were made. See [Config.IDTime].
type IDTime uint8

const (
	// UUIDv7 is the UUID version 7 of RFC 9562, as text of 36 characters with hyphens. It begins
	// with milliseconds since 1970.
	UUIDv7 IDTime = iota + 1
	// ULID has 26 characters of Crockford's base 32, without I, L, O and U. It begins with
	// milliseconds since 1970. See https://github.com/ulid/spec.
	ULID
	// Snowflake is a positive 64-bit number in decimal digits, whose upper 42 bits are milliseconds
	// since [Config.SnowflakeEpoch]: the ids of X, Discord and others.
	Snowflake
)

// String returns the name of the kind, as in errors.
func (k IDTime) String() string {
	switch k {
	case UUIDv7:
		return "UUIDv7"
	case ULID:
		return "ULID"
	case Snowflake:
		return "Snowflake"
	default:
		return fmt.Sprintf("IDTime(%d)", uint8(k))
	}
}

// idForm says how the ids of rows are made from keys.
type idForm struct {
	kind  IDTime // zero: from the digest alone
	epoch int64  // of a Snowflake, in ms since 1970
}

// newIDForm takes a Config whose Retention and Dialect were checked before.
func newIDForm(cfg Config) (idForm, error) {
	switch {
	case cfg.IDTime > Snowflake:
		return idForm{}, inputError("IDTime",
			fmt.Sprintf("is %d, which is not a kind of ids", uint8(cfg.IDTime)))
	case cfg.IDTime != 0 && (cfg.Retention != DeleteRows ||
		cfg.Dialect != Postgres && cfg.Dialect != MySQL):
		return idForm{}, inputError("IDTime", "is for PostgreSQL and MySQL with DeleteRows")
	case cfg.IDTime == Snowflake && cfg.SnowflakeEpoch.IsZero():
		return idForm{}, inputError("SnowflakeEpoch",
			"is zero; it must be the instant that the ids count from")
	case cfg.IDTime != Snowflake && !cfg.SnowflakeEpoch.IsZero():
		return idForm{}, inputError("SnowflakeEpoch", "is set, and IDTime is not Snowflake")
	case cfg.IDTime == Snowflake:
		return idForm{cfg.IDTime, cfg.SnowflakeEpoch.UnixMilli()}, nil
	}
	return idForm{kind: cfg.IDTime}, nil
}

// text returns the form on record for a table. It never changes: a program reads it to know whether
// its own ids have the table's form.
func (f idForm) text() string {
	switch f.kind {
	case 0:
		return "digest"
	case Snowflake:
		return snowflakeForm + strconv.FormatInt(f.epoch, 10)
	default:
		return strings.ToLower(f.kind.String())
	}
}

// snowflakeForm stands before the epoch.
const snowflakeForm = "snowflake since "

// parseIDForm is the reverse of text; false for the form of another version.
func parseIDForm(text string) (f idForm, ok bool) {
	switch text {
	case idForm{}.text():
		return idForm{}, true
	case idForm{kind: UUIDv7}.text():
		return idForm{kind: UUIDv7}, true
	case idForm{kind: ULID}.text():
		return idForm{kind: ULID}, true
	}
	digits, ok := strings.CutPrefix(text, snowflakeForm)
	epoch, err := strconv.ParseInt(digits, 10, 64)
	return idForm{Snowflake, epoch}, ok && err == nil
}

// id returns the id of a row: the digest, or four bytes of the key's own time followed by 96 bits
// of the digest. The time is in whole seconds, so that ids of one moment fall on several pages of
// an index, and not all writers wait for the last page. Whether the time is right does not matter:
// it is a function of the key, so a duplicate has the same, and it only orders rows. It wraps
// around after 136 years, also for an id that claims to be of another era.
func (f idForm) id(namespace, scope, key string) (driver.ID, error) {
	id, err := driver.NewID(namespace, scope, key)
	if err != nil || f.kind == 0 {
		return id, err
	}
	ms, ok := f.millis(key)
	if !ok {
		return driver.ID{}, inputError("key",
			"is not a "+f.kind.String()+", which Config.IDTime says that every key is")
	}
	copy(id[4:], id[:])
	binary.BigEndian.PutUint32(id[:4], uint32(ms/1000)) //nolint:gosec // it wraps around
	return id, nil
}

// millis returns the time that a key carries; false for a key of another kind.
func (f idForm) millis(key string) (int64, bool) {
	switch f.kind {
	case UUIDv7:
		return uuidMillis(key)
	case ULID:
		return ulidMillis(key)
	default:
		return f.snowflakeMillis(key)
	}
}

// uuidMillis checks the version and the variant, so no other UUID is taken for one with a time.
func uuidMillis(key string) (int64, bool) {
	const size, version, variant = 36, 14, 19
	if len(key) != size || key[8] != '-' || key[13] != '-' || key[18] != '-' || key[23] != '-' ||
		key[version] != '7' || !strings.ContainsRune("89abAB", rune(key[variant])) {
		return 0, false
	}
	var b [16]byte
	digits := key[:8] + key[9:13] + key[14:18] + key[19:23] + key[24:]
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 16), true //nolint:gosec // 48 bits
}

// crockford has the digits of base 32 in the order of their values.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ulidMillis refuses text that does not fit into 128 bits, as the specification says.
func ulidMillis(key string) (ms int64, ok bool) {
	const size, timeSize = 26, 10
	if len(key) != size || key[0] > '7' {
		return 0, false
	}
	for i, c := range []byte(strings.ToUpper(key)) {
		digit := strings.IndexByte(crockford, c)
		if digit < 0 {
			return 0, false
		}
		if i < timeSize {
			ms = ms<<5 | int64(digit)
		}
	}
	return ms, true
}

// snowflakeMillis accepts only one text for a number, without sign and leading zeros: two texts of
// one id would be two keys.
func (f idForm) snowflakeMillis(key string) (int64, bool) {
	if key[0] < '1' || key[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(key, 10, 64)
	return f.epoch + n>>22, err == nil
}
