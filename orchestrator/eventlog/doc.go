// Package eventlog reads the streams of the event log and of the audit log.
//
// An entry of the event log holds the events of one call of the store. Its id is
// "<seq>-0", where seq is the sequence number of its last event. Its fields are
// named 1, 2, and so on, and each of them is one packed event. The events of an
// entry have consecutive sequence numbers. An earlier version wrote one entry for
// each event, with a field for each value. Such entries stay readable. The audit
// log has entries of this kind only.
package eventlog
