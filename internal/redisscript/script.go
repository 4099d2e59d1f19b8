package redisscript

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// The scripts. Their files say what they take and return.
var (
	Claim  = load("claim", "index", "bucket").indexed()
	Renew  = load("renew", "index").indexed()
	Finish = load("finish", "index", "bucket").indexed()
	Lookup = load("lookup", "bucket")
	Forget = load("forget", "index", "bucket").indexed()
	// Restore undoes a plain completion that overwrote what it must not.
	Restore = load("restore", "index", "bucket").indexed()
	// Drop gives up the lease of a key that was found to be done.
	Drop    = load("drop")
	Forgets = load("forgets")
	// Complete is Finish for many claims that their owners still hold.
	Complete = loadAfter("complete").indexed()
	// Enter is for a record and an index that are on two servers.
	Enter = load("enter", "index")
	// Reindex makes the index agree with a record.
	Reindex = load("reindex", "index").indexed()
)

// Script is one Lua script, with its name at the server.
type Script struct {
	// Name of the file, without ".lua".
	Name string
	// full is what Redis gets; plain lacks the shebang line.
	full, plain source
	// inIndex says that the last of its keys is the index.
	inIndex bool
}

func (s *Script) indexed() *Script {
	s.inIndex = true
	return s
}

// SHA1 is the name by which EVALSHA calls the script at a server that knows shebangs, in
// hexadecimal.
func (s *Script) SHA1() string { return s.full.sha }

// source is a text and its SHA-1 in hexadecimal.
type source struct{ text, sha string }

func newSource(text string) source {
	sum := sha1.Sum([]byte(text))
	return source{text, hex.EncodeToString(sum[:])}
}

// load puts the preludes between a script's shebang, which must stay the first line, and
// the rest of it.
func load(name string, more ...string) *Script {
	return loadAfter(name, append([]string{"record"}, more...)...)
}

// loadAfter is load with these preludes, or none.
func loadAfter(name string, preludes ...string) *Script {
	prelude, body := "", file(name)
	for _, p := range preludes {
		prelude += file(p)
	}
	shebang := ""
	if strings.HasPrefix(body, "#!") {
		line, rest, _ := strings.Cut(body, "\n")
		shebang, body = line+"\n", rest
	}
	plain := prelude + body
	return &Script{Name: name, full: newSource(shebang + plain), plain: newSource(plain)}
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
func (s *Script) source(plain bool) source {
	if plain {
		return s.plain
	}
	return s.full
}
