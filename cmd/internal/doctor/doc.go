// Package doctor checks servers and the connections to them, and reports what loses claims, records
// or effects. It uses the Preflight of redisadapter and of sqladapter, and asks Kafka.
package doctor
