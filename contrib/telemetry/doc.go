// Package telemetry measures Onceward with OpenTelemetry: the outcomes of a Deduper's claims, the
// age of its duplicates against the window, uncertain keys, lost leases and failures, the lag of an
// outbox, and the cost of retries.
//
//	metrics, err := telemetry.NewMetrics(provider, telemetry.Config{Name: "payments", Window: window})
//	...
//	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: window,
//		LeaseTTL: 30 * time.Second, Observer: telemetry.Join(metrics.Observer(), mine)})
//
// It needs only OpenTelemetry's API: the program chooses the provider and the exporter. The page
// docs/reference/telemetry.md of the repository lists metrics, units and attributes. In the folder
// of this package alerts.yml has rules for Prometheus, each with a page, and dashboard.json is a
// dashboard for Grafana.
//
// Attributes have values from closed sets. No attribute has a key, its digest or the text of an
// error, so the number of series does not grow with the number of keys.
package telemetry
