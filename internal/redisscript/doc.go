// Package redisscript holds the Lua scripts that redisadapter and lease share, and runs
// batches of them in pipelines.
//
// A script touches one key, so that no batch can get CROSSSLOT, or TRYAGAIN during a slot
// migration. There are two exceptions. There are two exceptions. Scripts with buckets touch these
// buckets too, in the same slot: while that slot moves, and its keys are on two servers, these
// scripts get TRYAGAIN. And complete.lua takes many keys, if one server has them all. Every script
// may be sent again with the same arguments: it then finds what the first send did. Each script is
// one file in lua/, with a header that names its KEYS, its ARGV and what it returns; record.lua is
// put in front of all scripts that read more than a claim.
package redisscript
