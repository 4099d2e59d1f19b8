// Package redisscript holds the Lua scripts that redisadapter and lease share, and runs
// batches of them in pipelines.
//
// A script touches one key, so that no batch can meet CROSSSLOT or a TRYAGAIN during a slot
// migration, with two exceptions. Those that know buckets touch these too, in the same
// slot: while it is being moved, and its keys lie partly here and partly there, they are
// answered TRYAGAIN. And complete.lua takes many keys, where one server has them all. Every
// script may be sent again with the same arguments: it then finds what the first send did.
// Each script is one file in lua/, with a header that names its KEYS, its ARGV and what it
// returns; record.lua is put in front of all that read more than a claim.
package redisscript
