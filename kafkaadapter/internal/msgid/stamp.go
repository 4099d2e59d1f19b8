package msgid

import "strings"

// stampPrefix begins the metadata of our commits.
const stampPrefix = "topic-id="

// Stamp is the metadata of a commit to the topic with this UUID. A commit names its topic by
// name alone in every version below 10: the stamp tells whoever reads it later that the offset
// belongs to a topic of that name that was deleted since. It is empty where the UUID is not known.
func Stamp(uuid string) string {
	if uuid == "" {
		return ""
	}
	return stampPrefix + uuid
}

// Stamped is the UUID in the metadata of a commit. It is empty for a commit of anybody else.
func Stamped(metadata string) string {
	uuid, ok := strings.CutPrefix(metadata, stampPrefix)
	if !ok {
		return ""
	}
	return uuid
}
