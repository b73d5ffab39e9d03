package format

import (
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// recorded are the answers of the build that wrote the data of a format.
func recorded(t *testing.T, format string) (said map[string]answers) {
	t.Helper()
	kit.OK(t, json.Unmarshal(unpack(t, format+".json.gz"), &said))
	return said
}

// compare compares what two builds say about a namespace.
func compare(t *testing.T, namespace string, got, want answers) {
	t.Helper()
	for question, answer := range want {
		kit.OK(t, answer.Compact())
		if string(got[question]) != string(answer) {
			t.Errorf("%s, %s:\n got %s\nwant %s", namespace, question, got[question], answer)
		}
		delete(got, question)
	}
	for question, answer := range got {
		t.Errorf("%s, %s was not answered before: %s", namespace, question, answer)
	}
}

// This build answers about a store of format 1 what the build answered that wrote it.
func TestAnswersAboutFormat1(t *testing.T) { wantAnswers(t, "format1") }

// This build answers about a store of format 2 what the build answered that wrote it.
func TestAnswersAboutFormat2(t *testing.T) { wantAnswers(t, "format2") }

func wantAnswers(t *testing.T, format string) {
	where, raw := startOn(t, format)
	names, want := namespaces(t, raw), recorded(t, format)
	s := open(t, where, names)
	for _, name := range names {
		compare(t, name, askEverything(t, s.Engine(name), raw), want[name])
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("%d namespaces are missing", len(want))
	}
}
