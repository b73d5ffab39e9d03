package rig

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Random returns a source of random numbers with the seed of the test.
func Random(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), 0))
}

// Seed returns the seed of a random test: PICKET_SEED if it is set, and the time
// otherwise. It logs the command that repeats the test.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PICKET_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("PICKET_SEED: %v", err)
		}
	}
	tb.Logf("to repeat, run PICKET_SEED=%d go test -run '^%s$' in this package", seed, tb.Name())
	seedsUsed.note(tb.Name(), fmt.Sprint(seed))
	return seed
}
