// Package doctor looks at the servers and at the way to them, with the Preflight of redisadapter
// and of sqladapter, and with questions to Kafka, and names what loses claims, records or effects.
package doctor
