package agent

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

func unauthorized() *apierrors.StatusError { return apierrors.NewUnauthorized("Unauthorized") }

func TestOutcomesBecomeMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	c := newOutcomes(reg)
	for _, o := range []protocol.Outcome{
		{Command: "ADD", Outcome: "redirected", Source: protocol.SourceStaleFile,
			Phases: map[string]float64{"find": .0003, "apply": 11}},
		{Command: "ADD", Outcome: "redirected", Phases: map[string]float64{"find": .0002}},
		{Command: "ADD", Outcome: "skipped", Reason: "not_injected",
			Source: protocol.SourceRuntime},
		{Command: "DEL", Outcome: "a_word_of_next_year", Source: "another"},
		{Command: "ADD", Outcome: "failed", Reason: "has spaces",
			Phases: map[string]float64{"find": -1, "apply": math.Inf(1)}},
	} {
		c.count(o)
	}
	const want = `
# HELP sidecar_cni_commands_total CNI commands that the plugin reported, by how they ended and why, and by where the plugin got the pod from.
# TYPE sidecar_cni_commands_total counter
sidecar_cni_commands_total{command="ADD",outcome="failed",reason="other",source=""} 1
sidecar_cni_commands_total{command="ADD",outcome="redirected",reason="",source=""} 1
sidecar_cni_commands_total{command="ADD",outcome="redirected",reason="",source="stale_file"} 1
sidecar_cni_commands_total{command="ADD",outcome="skipped",reason="not_injected",source="runtime"} 1
sidecar_cni_commands_total{command="DEL",outcome="a_word_of_next_year",reason="",source="other"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"sidecar_cni_commands_total"); err != nil {
		t.Error(err)
	}
	const phases = `
# HELP sidecar_cni_command_phase_duration_seconds How long the phases of the CNI commands took that the plugin reported.
# TYPE sidecar_cni_command_phase_duration_seconds histogram
`
	var lines strings.Builder
	lines.WriteString(phases)
	bounds := []string{"0.0002", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1",
		"0.2", "0.5", "1", "2", "5", "10", "+Inf"}
	for _, series := range []struct {
		phase      string
		sum        string
		cumulative func(i int) int
	}{
		{"apply", "11", func(i int) int { return i / (len(bounds) - 1) }},
		{"find", "0.0005", func(i int) int { return min(1+i, 2) }},
	} {
		for i, le := range bounds {
			fmt.Fprintf(&lines, "sidecar_cni_command_phase_duration_seconds_bucket{command=\"ADD\",phase=%q,le=%q} %d\n", series.phase, le, series.cumulative(i))
		}
		fmt.Fprintf(&lines, "sidecar_cni_command_phase_duration_seconds_sum{command=\"ADD\",phase=%q} %s\n", series.phase, series.sum)
		fmt.Fprintf(&lines, "sidecar_cni_command_phase_duration_seconds_count{command=\"ADD\",phase=%q} %d\n", series.phase, series.cumulative(len(bounds)-1))
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(lines.String()),
		"sidecar_cni_command_phase_duration_seconds"); err != nil {
		t.Error(err)
	}
}

// A pod that was given istio-init back has an Event; one that has it anyway has none, and neither
// has the CHECK of the first.
func TestARestoredInitContainerBecomesAnEvent(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	run(t, r.events.Run)
	socket := startServer(t, r)
	const skipped = `{"command":%q,"namespace":"shop","name":%q,"uid":"5d1c","outcome":"skipped",` +
		`"reason":%q}`
	for _, body := range []string{
		fmt.Sprintf(skipped, "ADD", "init-0", "has_istio_init"),
		fmt.Sprintf(skipped, "CHECK", "check-0", "init_container_restored"),
		fmt.Sprintf(skipped, "ADD", "web-0", "init_container_restored"), // the last one
	} {
		if status, answer := send(t, socket, http.MethodPost, "/v1/outcomes",
			body); status != http.StatusNoContent {
			t.Fatalf("%d %s", status, answer)
		}
	}
	await.Until(t, "an Event", func() bool { return len(r.api.Events()) > 0 })
	event := r.api.Events()[0]
	got := []string{event.Type, event.Reason, event.InvolvedObject.Name}
	if diff := cmp.Diff([]string{"Warning", "SidecarInitRestored", "web-0"}, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	for _, word := range []string{"istio-init", "zzz-sidecar-cni-strip"} {
		if !strings.Contains(event.Message, word) {
			t.Errorf("%q does not name %s", event.Message, word)
		}
	}
}

// Whatever is told, Prometheus gets no more than so many series, and each outcome is in one of
// them.
func TestWordsAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	c := newOutcomes(reg)
	const told = 10 * mostOutcomes
	for i := range told {
		word := fmt.Sprintf("word_%d", i)
		c.count(protocol.Outcome{Command: word, Outcome: word, Reason: word, Source: word,
			Phases: map[string]float64{word: 1}})
	}
	c.count(protocol.Outcome{Command: "word_0", Outcome: "word_0", Reason: "word_0",
		Source: "word_0"})
	if got := testutil.CollectAndCount(c.commands); got != mostOutcomes+1 {
		t.Errorf("%d series of commands, want %d", got, mostOutcomes+1)
	}
	if got := testutil.CollectAndCount(c.phases); got != mostPhases+1 {
		t.Errorf("%d series of phases, want %d", got, mostPhases+1)
	}
	if got := testutil.ToFloat64(c.commands.WithLabelValues(other, other, other,
		other)); got != told-mostOutcomes {
		t.Errorf("%v counted as others, want %d", got, told-mostOutcomes)
	}
	if got := testutil.ToFloat64(c.commands.WithLabelValues("word_0", "word_0",
		"word_0", other)); got != 2 {
		t.Errorf("%v counted of a word that was there before, want 2", got)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]bool{
		"": true, "ADD": true, "not_injected": true, "v2": true,
		"two words": false, "a\n": false, "ä": false, "\xff": false, strings.Repeat("x", 41): false,
	} {
		if got := plain(word); got != want {
			t.Errorf("%q is fit for a label: %v, want %v", word, got, want)
		}
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"command":"ADD","namespace":"shop","name":"web-0","uid":"5d1c","outcome":"failed","reason":"denied","message":"m","phases":{"find":0.0021}}`))
	f.Add([]byte(`{"command":"ADD","outcome":"x","phases":{"find":1e308,"":-0}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := readOutcome(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		reg := prometheus.NewPedanticRegistry()
		newOutcomes(reg).count(o)
		if _, err := reg.Gather(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	})
}
