package webhook_test

import (
	"hash/crc32"
)

// sameCRC returns body and 64 blanks or tabs, with the CRC-32 of like. The CRC is linear in the
// choice of blanks and tabs, so Gaussian elimination finds it.
func sameCRC(body, like []byte) []byte {
	const places = 64
	forged := append([]byte{}, body...)
	for range places {
		forged = append(forged, ' ')
	}
	start := crc32.ChecksumIEEE(forged)
	want := start ^ crc32.ChecksumIEEE(like)
	type row struct {
		crc   uint32
		flips uint64
	}
	var basis [32]row
	for i := range places {
		at := len(body) + i
		forged[at] = '\t'
		r := row{crc32.ChecksumIEEE(forged) ^ start, 1 << i}
		forged[at] = ' '
		for bit := 31; bit >= 0 && r.crc != 0; bit-- {
			if r.crc>>bit&1 == 0 {
				continue
			}
			if basis[bit].crc == 0 {
				basis[bit] = r
				break
			}
			r = row{r.crc ^ basis[bit].crc, r.flips ^ basis[bit].flips}
		}
	}
	var flips uint64
	for bit := 31; bit >= 0; bit-- {
		if want>>bit&1 == 1 {
			want, flips = want^basis[bit].crc, flips^basis[bit].flips
		}
	}
	for i := range places {
		if flips>>i&1 == 1 {
			forged[len(body)+i] = '\t'
		}
	}
	return forged
}
