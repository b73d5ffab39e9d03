package picket

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretsAreNotPrinted(t *testing.T) {
	s := Secret(LeaseTokenPrefix + "default")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("lease", "token", s)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s", s, s, s, s), log.String()} {
		if strings.Contains(text, "pkl_") {
			t.Errorf("printed %s", text)
		}
	}
	b, err := stdjson.Marshal(s)
	if err != nil || !strings.Contains(string(b), "pkl_") {
		t.Errorf("its owner gets %s %v", b, err)
	}
}
