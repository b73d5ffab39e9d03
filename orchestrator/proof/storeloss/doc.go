// Package storeloss makes the store forget: it is emptied, cut, restored from
// an older state or replaced by a replica. Tokens rise all the same, and
// holders go on.
package storeloss
