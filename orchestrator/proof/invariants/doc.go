// Package invariants damages a store in every way that the scanner of
// invariants knows. The scanner has to find each damage, and repair it if that
// is safe.
package invariants
