// Package watch shows live rates. What happens to keys is known to the processes that claim them,
// so it reads the Prometheus metrics that they expose (package telemetry); of a server it shows
// what the server itself counts, whoever causes it.
package watch
