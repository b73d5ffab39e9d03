// Package clock holds the tests of clocks that jump, at named points and at
// random points of random lives.
package clock
