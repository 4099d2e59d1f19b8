package plan

import (
	"math"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/redisadapter"
)

// Plan is the result of the command, as --json writes it. Rates are per second.
type Plan struct {
	Rate         float64 `json:"rate"`           // messages
	NewRate      float64 `json:"new_rate"`       // of these, new keys
	WindowMS     int64   `json:"window_ms"`      //
	KeysInWindow uint64  `json:"keys_in_window"` // new keys
	Spare        float64 `json:"spare"`          // share added to maxmemory and expected keys
	Redis        []Redis `json:"redis"`
	Bloom        []Bloom `json:"bloom"`
	SQL          []SQL   `json:"sql"`
}

// Redis is the plan for one layout in Redis, when it is fullest.
type Redis struct {
	Layout      string  `json:"layout"`
	Keeps       string  `json:"keeps"`
	Keys        uint64  `json:"keys"` // remembered at the same time
	BytesPerKey float64 `json:"bytes_per_key"`
	Bytes       uint64  `json:"bytes"`
	MaxMemory   uint64  `json:"maxmemory"`
	// ExpectedKeys and Shards are the settings of redisadapter.Options, and 0 for a layout without
	// them.
	ExpectedKeys int `json:"expected_keys,omitempty"`
	Shards       int `json:"shards,omitempty"`
	// FalseDuplicate is the probability that a new key is taken for done, and FalsePerYear how
	// often that happens in a year. Both are 0 for a comparison.
	FalseDuplicate float64 `json:"false_duplicate_odds"`
	FalsePerYear   float64 `json:"false_duplicates_per_year"`
}

// Bloom is a filter. Each process that uses one needs this much.
type Bloom struct {
	Kind        string  `json:"kind"`
	Bytes       uint64  `json:"bytes"`
	BytesPerKey float64 `json:"bytes_per_key"` // for a key in the window
	Hashes      int     `json:"hashes"`
	Generations int     `json:"generations"`
	// FalsePositives is the share of new keys for which the store is asked anyway. They are not
	// taken for done.
	FalsePositives float64 `json:"false_positives"`
}

// SQL is the plan for a table of marks, when it is fullest.
type SQL struct {
	Engine    string `json:"engine"`
	Retention string `json:"retention"`
	// Tables is how many tables hold marks at the same time: those of the generations.
	Tables      int     `json:"tables"`
	Rows        uint64  `json:"rows"`
	BytesPerKey float64 `json:"bytes_per_key"`
	Bytes       uint64  `json:"bytes"`
}

const (
	// serverBase is the room for an empty server and its clients.
	serverBase = 16 << 20
	year       = 365.25 * 24 * 3600
	// digestBits is the length of a key's ID.
	digestBits = 128
	// memberBits is the length of a member in the compact layout.
	memberBits = 64
)

// New makes the plan.
func New(o Options) (Plan, error) {
	keys := math.Ceil(o.keys())
	p := Plan{
		Rate: o.Rate, NewRate: o.newRate(), WindowMS: o.Window.Milliseconds(),
		KeysInWindow: uint64(keys), Spare: o.Spare, SQL: o.sql(),
		Redis: []Redis{o.layout(redisadapter.Full), o.layout(redisadapter.Compact)},
	}
	if o.Key > 0 {
		// The usual SET NX of the key itself, with a token.
		const token = 28
		r := Redis{Layout: "SET NX", Keeps: "the key and a token, for comparison"}
		r.fill(uint64(keys), records(keys, o.Key, token), o.Spare)
		p.Redis = append(p.Redis, r)
	}
	for _, kind := range []bloom.Kind{bloom.Blocked, bloom.Classic} {
		b, err := bloom.Options{Window: o.Window, Rate: p.NewRate, Kind: kind,
			FalsePositives: o.FalsePositives}.Plan()
		if err != nil {
			return Plan{}, err
		}
		p.Bloom = append(p.Bloom, Bloom{
			Kind: kind.String(), Bytes: b.Bytes, BytesPerKey: round(float64(b.Bytes) / o.keys()),
			Hashes: b.Hashes, Generations: b.Generations, FalsePositives: b.FalsePositives,
		})
	}
	return p, nil
}

// layout is the plan for one layout. In the compact layout, keys are remembered for one to two
// windows.
func (o *Options) layout(layout redisadapter.Layout) Redis {
	r := Redis{Layout: layout.String(), Keeps: "result or failure, fingerprint"}
	keys, generations, bits := math.Ceil(o.keys()), 1, digestBits
	among := keys // the keys that a new key can be mistaken for
	if layout == redisadapter.Compact {
		r.Keeps = "that it is done, as 8 bytes"
		r.ExpectedKeys = int(math.Ceil(keys * (1 + o.Spare)))
		r.Shards = redisadapter.Options{Layout: layout, ExpectedKeys: r.ExpectedKeys}.Shards()
		generations, bits = 2, memberBits
		among = 2 * keys / float64(r.Shards)
	}
	r.fill(uint64(keys)*uint64(generations), o.redis(layout, keys, r.Shards, generations), o.Spare)
	r.FalseDuplicate = math.Ldexp(among, -bits)
	r.FalsePerYear = r.FalseDuplicate * o.newRate() * year
	return r
}

// fill sets the fields that follow from the number of keys and from the bytes of all of them.
func (r *Redis) fill(keys uint64, bytes, spare float64) {
	r.Keys, r.Bytes, r.BytesPerKey = keys, uint64(bytes), round(bytes/float64(keys))
	r.MaxMemory = uint64(bytes*(1+spare)) + serverBase
}

// round keeps two decimals.
func round(v float64) float64 { return math.Round(v*100) / 100 }
