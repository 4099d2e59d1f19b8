// Package mcpadapter makes a tool call of the Model Context Protocol have its effect once, even
// when an agent sends it again. It is a receiving middleware for servers of the official Go SDK.
//
//	run, err := httpadapter.Claimed(d)
//	...
//	once, err := mcpadapter.New(run, mcpadapter.TokenUser, mcpadapter.Config{Name: "payments"})
//	...
//	server.AddReceivingMiddleware(once)
//
// The key of a call is in the _meta of its request, which the host application can write and the
// model cannot. Or it is made of the arguments that [Tool].KeyFields names. The ID of a JSON-RPC
// request is new in each retry, so it is never the key. The first call with a key runs the tool,
// and its result is recorded before it leaves. A later call gets the recorded result. A call that
// arrives in between waits for the result, for as long as Config.Wait of the Deduper says.
//
// A tool that is destructive and not idempotent declares the point of no return before it runs
// ([dedup.MarkIrreversible]). When its answer is lost, nobody runs it again: the next call asks
// [dedup.Config].Resolve whether the effect has happened. A tool without annotations counts as
// destructive and not idempotent, as the specification says. An idempotent tool runs again after a
// crash. A read-only tool passes through.
//
// The guide docs/guides/agents.md has a complete server, and a table of all answers.
package mcpadapter
