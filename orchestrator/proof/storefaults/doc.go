// Package storefaults runs every call while the store is full, stopped, busy,
// loading or refuses to write, and with an error at every fault point.
package storefaults
