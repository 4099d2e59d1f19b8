package plan

import (
	"math"
	"time"

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
	p := Plan{
		Rate: o.Rate, NewRate: o.newRate(), WindowMS: o.Window.Milliseconds(),
		KeysInWindow: uint64(math.Ceil(o.keys())), Spare: o.Spare,
	}
	for _, layout := range []redisadapter.Layout{redisadapter.Full, redisadapter.Compact} {
		p.Redis = append(p.Redis, o.layout(layout))
	}
	if o.Key > 0 {
		p.Redis = append(p.Redis, o.recipe())
	}
	for _, kind := range []bloom.Kind{bloom.Blocked, bloom.Classic} {
		b, err := o.bloom(kind)
		if err != nil {
			return Plan{}, err
		}
		p.Bloom = append(p.Bloom, b)
	}
	p.SQL = o.sql()
	return p, nil
}

// layout is the plan for one layout. In the compact layout, keys are remembered for one to two
// windows.
func (o *Options) layout(layout redisadapter.Layout) Redis {
	r := Redis{Layout: layout.String(), Keeps: keeps(layout)}
	keys, generations, bits := math.Ceil(o.keys()), 1, digestBits
	among := keys // the keys that a new key can be mistaken for
	if layout == redisadapter.Compact {
		r.ExpectedKeys = int(math.Ceil(keys * (1 + o.Spare)))
		r.Shards = redisadapter.Options{Layout: layout, ExpectedKeys: r.ExpectedKeys}.Shards()
		generations, bits = 2, memberBits
		among = 2 * keys / float64(r.Shards)
	}
	bytes := o.redis(layout, keys, r.Shards, generations)
	r.Keys = uint64(keys) * uint64(generations)
	r.fill(bytes, o.Spare)
	r.FalseDuplicate = math.Ldexp(among, -bits)
	r.FalsePerYear = r.FalseDuplicate * o.newRate() * year
	return r
}

// fill sets the fields that follow from the bytes of all keys.
func (r *Redis) fill(bytes, spare float64) {
	r.Bytes, r.BytesPerKey = uint64(bytes), round(bytes/float64(r.Keys))
	r.MaxMemory = uint64(bytes*(1+spare)) + serverBase
}

func keeps(layout redisadapter.Layout) string {
	if layout == redisadapter.Compact {
		return "that it is done, as 8 bytes"
	}
	return "result or failure, fingerprint"
}

// recipe is the plan for the usual SET NX of the key itself, with a token of 28 bytes.
func (o *Options) recipe() Redis {
	const token = 28
	keys := math.Ceil(o.keys())
	r := Redis{Layout: "SET NX", Keeps: "the key and a token, for comparison", Keys: uint64(keys)}
	r.fill(records(keys, o.Key, token), o.Spare)
	return r
}

func (o *Options) bloom(kind bloom.Kind) (Bloom, error) {
	p, err := bloom.Options{Window: o.Window, Rate: o.newRate(), FalsePositives: o.FalsePositives,
		Kind: kind}.Plan()
	if err != nil {
		return Bloom{}, err
	}
	return Bloom{
		Kind: kind.String(), Bytes: p.Bytes, BytesPerKey: round(float64(p.Bytes) / o.keys()),
		Hashes: p.Hashes, Generations: p.Generations, FalsePositives: p.FalsePositives,
	}, nil
}

// round keeps two decimals.
func round(v float64) float64 { return math.Round(v*100) / 100 }

func window(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
