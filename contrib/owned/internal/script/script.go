// Package script has the Lua scripts of owned partitions, and runs batches of them in pipelines.
//
// All keys of one call have one hash tag. While a Cluster moves their slot, and each of two nodes
// has some of the keys, the call is answered TRYAGAIN. Every script may be sent again with the same
// arguments: it then finds what the first send did. Each script is one file in lua/, with a header
// that names its KEYS, its ARGV and what it returns. load puts head.lua in front of all but
// swap.lua.
package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// script is one Lua script. Redis gets full. A server that does not know shebang lines gets plain,
// which has no such line.
type script struct{ full, plain source }

// source is a text and its SHA-1 in hexadecimal.
type source struct{ text, sha string }

func newSource(text string) source {
	sum := sha1.Sum([]byte(text))
	return source{text, hex.EncodeToString(sum[:])}
}

// load inserts the prelude, if there is one, after a script's shebang, which must stay the first
// line.
func load(prelude, name string) *script {
	shebang, body, _ := strings.Cut(file(name), "\n")
	if prelude != "" {
		body = file(prelude) + body
	}
	return &script{full: newSource(shebang + "\n" + body), plain: newSource(body)}
}

// strict is the script without its flags: a server without free memory refuses it at the start.
func strict(s *script) *script {
	return &script{full: newSource("#!lua\n" + s.plain.text), plain: s.plain}
}

// file reads an embedded file; its absence is a mistake in this package.
func file(name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// source returns the text for a server that refuses shebangs, or for one that knows them.
func (s *script) source(plain bool) source {
	if plain {
		return s.plain
	}
	return s.full
}
