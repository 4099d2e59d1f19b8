package bloom

import (
	"fmt"
	"math"
)

const (
	blockWords = 8               // words of a block: one cache line
	blockBits  = blockWords * 64 // and an id sets one bit in each word
	maxKeys    = 1 << 40         // of a slice: what lies above is a wrong unit
)

// Plan says how large a filter of these options is, without making it. How many ids fall into a
// block varies, so the rate for Blocked is an expectation over Poisson's distribution: a block of i
// ids answers wrongly with probability (1-(63/64)^i)^8. The goal is shared out among the
// generations by the union bound. An error names the field.
func (o Options) Plan() (Plan, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Plan{}, err
	}
	keys := math.Ceil(o.Rate * o.slice().Seconds())
	if keys > maxKeys {
		return Plan{}, fmt.Errorf("bloom: Options.Rate and Window make %g keys a slice: at most %d",
			keys, uint64(maxKeys))
	}
	generations := o.Slices + 2
	p := o.sized(keys, o.FalsePositives/float64(generations))
	p.Generations, p.Bytes = generations, uint64(generations)*p.Bits/8
	p.FalsePositives *= float64(generations)
	if o.MaxBytes > 0 && p.Bytes > uint64(o.MaxBytes) {
		return Plan{}, fmt.Errorf(
			"bloom: Options.MaxBytes is %d, and the plan is %d bytes: %d generations of %d keys with %.1f bits each",
			o.MaxBytes, p.Bytes, generations, p.SliceKeys, p.BitsPerKey)
	}
	return p, nil
}

// sized returns the plan of one generation. For both kinds the bits are whole blocks.
func (o Options) sized(keys, goal float64) Plan {
	p := Plan{SliceKeys: uint64(keys), Hashes: blockWords}
	var perKey float64
	if o.Kind == Classic {
		perKey, p.Hashes = classicBits(goal)
	} else {
		perKey = bitsPerKey(goal)
	}
	blocks := max(1, math.Ceil(perKey*keys/blockBits))
	p.Bits, p.BitsPerKey = uint64(blocks)*blockBits, blocks*blockBits/keys
	if o.Kind == Classic {
		p.FalsePositives = classicRate(p.BitsPerKey, p.Hashes)
	} else {
		p.FalsePositives = blockedRate(p.BitsPerKey)
	}
	return p
}

// bitsPerKey returns the least number of bits that reach the goal.
func bitsPerKey(goal float64) float64 {
	low, high := 1.0, 512.0
	for high-low > 1e-3 {
		if mid := (low + high) / 2; blockedRate(mid) > goal {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// blockedRate returns the expected rate of false positives of a split-block filter with perKey
// bits a key.
func blockedRate(perKey float64) float64 {
	mean := blockBits / perKey
	sum := 0.0
	for i := 1.0; i < mean+20*math.Sqrt(mean)+40; i++ {
		factorial, _ := math.Lgamma(i + 1)
		poisson := math.Exp(i*math.Log(mean) - mean - factorial)
		sum += poisson * math.Pow(1-math.Pow(63.0/64, i), blockWords)
	}
	return sum
}
