package process

import "testing"

func TestSizesForPeople(t *testing.T) {
	for n, want := range map[int64]string{
		1 << 30:     "1 GiB",
		256 << 20:   "256 MiB",
		3 << 29:     "1536 MiB",
		12638621696: "12053.1 MiB",
		1000:        "1000 bytes",
	} {
		if got := formatBytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
