package podsource

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
)

// The protocol's page shows a pod and three refusals, in this order, and an outcome.
func TestExamplesOfThePageAreWhatIsSpoken(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agent-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	ref := Ref{Namespace: "shop", Name: "web-0", UID: "5d1c5f0e-7b0c-4d63-9a54-0c1d5a0f3b11"}
	message := regexp.MustCompile(
		`(?m)^    (?:HTTP/1.1 (\d+) |POST /v1/outcomes ).*\n(?:    .*\n)+\n((?:    .*\n)+)`)
	examples := message.FindAllSubmatch(page, -1)
	want := []string{"the pod", errAbsent.Error(),
		ref.otherUID("a1da4c7e-52d4-4b7e-8a53-6a3c9f6f7f0a").Error(),
		"it does not know yet: the API server has not answered since 12:04:31"}
	if len(examples) != len(want)+1 {
		t.Fatalf("%d examples, want %d:\n%q", len(examples), len(want)+1, examples)
	}
	for i, example := range examples[:len(want)] {
		status, _ := strconv.Atoi(string(example[1]))
		a, got := readAnswer(status, example[2], ref), "the pod"
		if a.err != nil {
			got = a.err.Error()
		}
		if got != want[i] {
			t.Errorf("got %q, want %q from %s", got, want[i], example[0])
		}
	}
	told, err := json.Marshal(protocol.Outcome{
		Command: "ADD", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, Outcome: "failed",
		Reason:  "denied",
		Message: "read pod shop/web-0 (2ms): access denied: ...",
		Phases:  map[string]float64{"find": 0.0021},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object(t, examples[len(want)][2]), object(t, told)); diff != "" {
		t.Errorf("outcome (-page +told):\n%s", diff)
	}
}

func object(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return object
}
