// Package audit counts the duplicates of a Kafka topic, a file of logs or a table, before anybody
// has changed a line of code for them. It reports their share, causes and ages, ids that are bad
// keys, and the window and memory that a Deduper needs for this traffic.
//
// It reads, and changes nothing: no consumer group, no commit, no lock.
//
// Its memory is bounded: it keeps a digest of each id. When there are more ids than it may keep, it
// continues with every second one of them, then with every fourth. The digest alone decides which
// ids it keeps, so it still counts all messages of the ids that it keeps. It then multiplies its
// counts, to make up for the ids that it leaves out.
package audit
