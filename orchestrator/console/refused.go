package console

import (
	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// refusedOf is why a write was refused, and how many writes the event stands
// for: after the first of a minute, one event tells of many.
func refusedOf(ev picket.Event) (code string, n int64) {
	var data struct {
		Code  string `json:"code"`
		Count int64  `json:"count"`
	}
	if json.Unmarshal(ev.Data, &data) != nil || data.Code == "" {
		return "other", 1
	}
	return data.Code, max(data.Count, 1)
}
