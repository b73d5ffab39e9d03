package devredis

import (
	"bufio"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A key in memory expires at its time, give or take a step.
func TestKeysInMemoryExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		defer m.Close()
		c, err := m.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		answers := bufio.NewScanner(c)
		do := func(command string) string {
			t.Helper()
			fmt.Fprintf(c, "%s\r\n", command)
			answers.Scan()
			return answers.Text()
		}
		time.Sleep(900 * time.Millisecond) // most of a step
		if said := do("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n60000"); said != "+OK" {
			t.Fatal(said)
		}
		const exists = "*2\r\n$6\r\nEXISTS\r\n$1\r\nk"
		time.Sleep(time.Minute - 2*expiryStep)
		if said := do(exists); said != ":1" {
			t.Errorf("two steps before its time: %s", said)
		}
		time.Sleep(4 * expiryStep)
		if said := do(exists); said != ":0" {
			t.Errorf("two steps after its time: %s", said)
		}
	})
}
