// Package proxy is the command onceward proxy: a reverse proxy in front of one service in any
// language. httpadapter answers requests with an Idempotency-Key, webhook receives the events of
// providers, and httputil.ReverseProxy passes on what is new.
package proxy
