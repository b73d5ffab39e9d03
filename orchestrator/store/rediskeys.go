package store

// Every key of a namespace is made from one prefix with one hash tag, so each
// script is one atomic step over all it needs. The scripts build the rest of
// the names from KEYS[1], the meta key; these are the few that Go reads itself.

func keyPrefix(namespace string) string    { return "pk:{" + namespace + "}:" }
func MetaKey(namespace string) string      { return keyPrefix(namespace) + "meta" }
func EventsKey(namespace string) string    { return keyPrefix(namespace) + "events" }
func AuditKey(namespace string) string     { return keyPrefix(namespace) + "audit" }
func wakeChannel(namespace string) string  { return keyPrefix(namespace) + "wake" }
func eventChannel(namespace string) string { return keyPrefix(namespace) + "tail" }
