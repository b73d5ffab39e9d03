// Package crowd holds the tests with many clients at once: workers that crash
// and come back, people who decide, and operations on envelopes that share a
// day.
package crowd
