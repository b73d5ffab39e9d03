package store

// Every key of a namespace is made from one prefix with one hash tag, so each
// verb is one atomic step over all it needs. The Lua files build the rest of
// the names from KEYS[1], the meta key; these are the few that Go reads itself.

func keyPrefix(namespace string) string { return "pk:{" + namespace + "}:" }

// MetaKey is the hash of what a namespace has once, such as its floor and its newest sequence number.
func MetaKey(namespace string) string { return keyPrefix(namespace) + "meta" }

// EventsKey is the stream of the event log.
func EventsKey(namespace string) string { return keyPrefix(namespace) + "events" }

// AuditKey is the stream of the audit log.
func AuditKey(namespace string) string { return keyPrefix(namespace) + "audit" }

func wakeChannel(namespace string) string  { return keyPrefix(namespace) + "wake" }
func eventChannel(namespace string) string { return keyPrefix(namespace) + "tail" }
