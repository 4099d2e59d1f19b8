package msgid

import "strings"

// stampPrefix begins the metadata of our commits.
const stampPrefix = "topic-id="

// Stamp is the metadata of a commit to the topic with this UUID. In every version below 10 a commit
// identifies its topic by name alone. From the stamp a later reader learns that the offset belongs
// to a topic of that name that has been deleted since. It is empty where the UUID is not known.
func Stamp(uuid string) string {
	if uuid == "" {
		return ""
	}
	return stampPrefix + uuid
}

// Stamped is the UUID in the metadata of a commit. It is empty for a commit of another program.
func Stamped(metadata string) string {
	uuid, ok := strings.CutPrefix(metadata, stampPrefix)
	if !ok {
		return ""
	}
	return uuid
}
