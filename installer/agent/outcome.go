package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// eventReasons are what `kubectl describe pod` shows of a command that failed. Others name no pod.
// What is behind each stands in docs/signals.md.
var eventReasons = map[string]string{
	"ADD":   "SidecarRedirectFailed", // the plugin refused the pod, which does not start
	"CHECK": "SidecarCheckFailed",    // the runtime asked: the pod's rules differ, or were not read
	"DEL":   "SidecarReleaseFailed",  // the plugin could not clean up behind a pod that ends
}

// outcome goes on when its client has hung up, which is what the plugin does.
func (s *Server) outcome(w http.ResponseWriter, r *http.Request) {
	outcome, err := readOutcome(http.MaxBytesReader(w, r.Body, protocol.MaxOutcome))
	if err != nil {
		refuse(w, http.StatusBadRequest,
			protocol.Refusal{Reason: protocol.ReasonMalformed, Message: err.Error()})
		return
	}
	s.outcomes.count(outcome)
	s.report(outcome)
	w.WriteHeader(http.StatusNoContent)
}

// Bypassed is the reason of Events about a part of a pod's traffic that is not redirected.
const Bypassed = "SidecarBypassed" // a part of the pod's traffic is not redirected

// InitRestored is the reason of Events about a pod that starts with istio-init, though our webhook
// had removed it.
const InitRestored = "SidecarInitRestored" // another webhook added istio-init again, behind ours

const restoredMessage = "the pod starts with istio-init, which redirects its traffic: our " +
	"webhook had removed it, and a webhook that is called later added it again. Have that one " +
	"leave istio-init out, or give its MutatingWebhookConfiguration a name that sorts before " +
	"zzz-sidecar-cni-strip; then delete the pod"

const mostNotices = 8 // of one outcome

// report writes the Events of an outcome that names a pod.
func (s *Server) report(o protocol.Outcome) {
	if o.Namespace == "" || o.Name == "" {
		return
	}
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace,
		Name: o.Name, UID: types.UID(o.UID)}
	if reason, ok := eventReasons[o.Command]; ok && o.Outcome == protocol.Failed {
		s.events.Warn(pod, reason, o.Message)
	}
	if o.Command == "ADD" && o.Reason == string(redirect.InitRestored) {
		s.events.Warn(pod, InitRestored, restoredMessage)
	}
	for _, notice := range o.Notices[:min(len(o.Notices), mostNotices)] {
		s.events.Warn(pod, Bypassed, notice)
	}
}

func readOutcome(body io.Reader) (protocol.Outcome, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return protocol.Outcome{}, fmt.Errorf("read outcome: %w", err)
	}
	var o protocol.Outcome
	if err := json.Unmarshal(data, &o); err != nil {
		return protocol.Outcome{}, fmt.Errorf("read outcome: %w", err)
	}
	if o.Command == "" || o.Outcome == "" {
		return protocol.Outcome{}, errors.New("read outcome: want a command and an outcome")
	}
	return o, nil
}

const (
	// Far more than a release of the plugin has, and little enough for a Prometheus that watches
	// thousands of nodes. Each may be by one of a few sources.
	mostOutcomes = 128
	mostPhases   = 32
	// other stands for words that come after so many, and for what is no word.
	other = "other"
)

// outcomes counts them.
type outcomes struct {
	commands *prometheus.CounterVec
	phases   *prometheus.HistogramVec

	mu            sync.Mutex
	knownOutcomes vocabulary
	knownPhases   vocabulary
}

func newOutcomes(reg prometheus.Registerer) *outcomes {
	return &outcomes{
		commands: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_commands_total",
			Help: "CNI commands that the plugin reported, by how they ended and why, and by " +
				"where the plugin got the pod from.",
		}, []string{"command", "outcome", "reason", "source"}),
		phases: promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
			Name: "sidecar_cni_command_phase_duration_seconds",
			Help: "How long the phases of the CNI commands took that the plugin reported.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5,
				10},
		}, []string{"command", "phase"}),
		knownOutcomes: vocabulary{most: mostOutcomes},
		knownPhases:   vocabulary{most: mostPhases},
	}
}

func (c *outcomes) count(o protocol.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	labels := c.knownOutcomes.admit(o.Command, o.Outcome, o.Reason)
	source := o.Source
	if source != "" && !slices.Contains(protocol.Sources(), source) {
		source = other
	}
	c.commands.WithLabelValues(labels[0], labels[1], labels[2], source).Inc()
	for phase, took := range o.Phases {
		if took < 0 || math.IsInf(took, 0) {
			continue // a clock that was set back
		}
		labels := c.knownPhases.admit(o.Command, phase, "")
		c.phases.WithLabelValues(labels[0], labels[1]).Observe(took)
	}
}

// A vocabulary bounds how many combinations of words there are.
type vocabulary struct {
	most int
	seen map[[3]string]bool
}

// admit returns the words, or others for them if they are no words or too many.
func (v *vocabulary) admit(words ...string) [3]string {
	labels := [3]string(words)
	for i, word := range labels {
		if !plain(word) {
			labels[i] = other
		}
	}
	if v.seen[labels] {
		return labels
	}
	if len(v.seen) >= v.most {
		return [3]string{other, other, other}
	}
	if v.seen == nil {
		v.seen = map[[3]string]bool{}
	}
	v.seen[labels] = true
	return labels
}

// plain reports whether a word is fit for a label. None is, too.
func plain(word string) bool {
	for _, r := range word {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter {
			return false
		}
	}
	return len(word) <= 40
}
