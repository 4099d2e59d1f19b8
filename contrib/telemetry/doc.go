// Package telemetry measures Onceward with OpenTelemetry: what a Deduper's claims found, how old
// its duplicates are against the window, what is uncertain, lost or failed, how far an outbox is
// behind, and what retries cost.
//
//	metrics, err := telemetry.NewMetrics(provider, telemetry.Config{Name: "payments", Window: window})
//	...
//	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: window,
//		LeaseTTL: 30 * time.Second, Observer: telemetry.Join(metrics.Observer(), mine)})
//
// It needs OpenTelemetry's API alone: the provider is the program's, with whatever exporter it
// has. The page docs/telemetry.md of the repository lists metrics, units and attributes;
// alerts.yml beside this file has rules for Prometheus, each with a page, and dashboard.json is a
// dashboard for Grafana.
//
// Attributes have values from closed sets. Keys, their digests and the texts of errors are in none,
// so the number of series does not grow with what is processed.
package telemetry
