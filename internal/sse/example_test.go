package sse_test

import (
	"fmt"
	"io"
	"strings"

	"github.com/picket-dev/picket/internal/sse"
)

func ExampleReader() {
	stream := "event: reset\nid: 7\ndata: {}\n\n: keep-alive\nid: 9\n\n"
	for r := sse.NewReader(strings.NewReader(stream), 1<<20); ; {
		e, err := r.Next()
		if err == io.EOF {
			return
		}
		fmt.Printf("%q %q %q %v\n", e.Type, e.ID, e.Data, err)
	}
	// Output:
	// "reset" "7" "{}" <nil>
	// "" "9" "" <nil>
}
