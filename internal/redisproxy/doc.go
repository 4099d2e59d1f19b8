// Package redisproxy stands between a Redis client and a Redis server and breaks what a
// test asks it to break. It reads the protocol, so a fault hits the reply of one command
// and not "some bytes": the server has executed the command, and the client does not
// know.
//
//	p := redisproxy.Start(t, redisAddr)
//	rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	p.SetRules(redisproxy.Rule{Command: "SET", Action: redisproxy.DropReply, Probability: 0.1, Seed: 1})
//	...
//	dropped := p.Stats().RepliesDropped
//
// Each client connection has its own connection to the server. Requests are forwarded in
// order, and every reply is matched to its request, in pipelines and transactions, in
// RESP2 and RESP3; pushes pass through. Some replies cannot be matched: after a
// (P|S)SUBSCRIBE or UNSUBSCRIBE, MONITOR, SYNC, PSYNC or CLIENT REPLY the proxy copies
// the rest of that connection without looking.
//
// In front of a Cluster, start one proxy per node and map addresses in the client's
// Dialer, because the server's redirections name the real nodes.
package redisproxy
