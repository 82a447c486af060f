package nodestatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
)

// conditionType is what docs and alerts call it.
const conditionType = "SidecarCNIReady"

var (
	effective = nodestatus.Condition{Ready: true, Reason: "ChainEffective",
		Message: "the chain has sidecar-cni"}
	renamed = nodestatus.Condition{Ready: true, Reason: "ChainEffective",
		Message: "the chain of another file has sidecar-cni"}
	conflict = nodestatus.Condition{Ready: false, Reason: "Conflict",
		Message: "10-x.conflist is written by another"}

	long    = metav1.NewTime(time.Unix(1700000000, 0))
	kubelet = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", LastHeartbeatTime: long, LastTransitionTime: long}
)

// said is our condition as it may be there already.
func said(c nodestatus.Condition) corev1.NodeCondition {
	status := corev1.ConditionFalse
	if c.Ready {
		status = corev1.ConditionTrue
	}
	return corev1.NodeCondition{
		Type: conditionType, Status: status, Reason: c.Reason, Message: c.Message,
		LastHeartbeatTime: long, LastTransitionTime: long,
	}
}

func withConditions(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
}

func (c *cluster) wantConditions(want ...corev1.NodeCondition) {
	c.t.Helper()
	ignore := cmpopts.IgnoreFields(corev1.NodeCondition{}, "LastHeartbeatTime",
		"LastTransitionTime")
	if diff := cmp.Diff(want, c.Node(name).Status.Conditions, ignore); diff != "" {
		c.t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestTheConditionIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		have    []corev1.NodeCondition
		want    []corev1.NodeCondition
		written bool
		moved   bool // the transition is now
	}{
		"a node without conditions": {nil, []corev1.NodeCondition{said(effective)}, true,
			true},
		"a node that lacks ours": {[]corev1.NodeCondition{kubelet},
			[]corev1.NodeCondition{kubelet, said(effective)}, true, true},
		"it is there": {[]corev1.NodeCondition{said(effective), kubelet},
			[]corev1.NodeCondition{said(effective), kubelet}, false, false},
		"it says the same in other words": {[]corev1.NodeCondition{said(renamed), kubelet},
			[]corev1.NodeCondition{said(effective), kubelet}, true, false},
		"it says the opposite": {[]corev1.NodeCondition{kubelet, said(conflict)},
			[]corev1.NodeCondition{kubelet, said(effective)}, true, true},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c, node := newCluster(t, withConditions(row.have...))
			start := time.Now().Add(-time.Second) // the API has whole seconds
			written, err := node.Report(t.Context(), effective)
			if err != nil || written != row.written {
				t.Fatalf("written: %v, error %v", written, err)
			}
			c.wantConditions(row.want...)
			for _, have := range c.Node(name).Status.Conditions {
				if have.Type != conditionType {
					continue
				}
				if moved := have.LastTransitionTime.After(start); moved != row.moved {
					t.Errorf("transition at %s", have.LastTransitionTime)
				}
				if beat := have.LastHeartbeatTime.After(start); beat != row.written {
					t.Errorf("heartbeat at %s", have.LastHeartbeatTime)
				}
			}
		})
	}
}

func TestWhatIsSaidIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	c, node := newCluster(t, withConditions(kubelet))
	for i, say := range []nodestatus.Condition{effective, conflict, effective} {
		for range 3 {
			if _, err := node.Report(t.Context(), say); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.Requests(); n != 2*(i+1) {
			t.Errorf("%d requests after %d changes, want a read and a write each", n, i+1)
		}
		c.wantConditions(kubelet, said(say))
	}
}

func TestTheConditionIsTakenAway(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		have, want []corev1.NodeCondition
		removed    bool
	}{
		"it is there": {[]corev1.NodeCondition{kubelet, said(effective)},
			[]corev1.NodeCondition{kubelet}, true},
		"it is the first": {[]corev1.NodeCondition{said(conflict), kubelet},
			[]corev1.NodeCondition{kubelet}, true},
		"it is not there": {[]corev1.NodeCondition{kubelet}, []corev1.NodeCondition{kubelet},
			false},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c, node := newCluster(t, withConditions(row.have...))
			if removed, err := node.Withdraw(t.Context()); err != nil || removed != row.removed {
				t.Errorf("removed: %v, error %v", removed, err)
			}
			c.wantConditions(row.want...)
			if _, err := node.Report(t.Context(), effective); err != nil {
				t.Error(err)
			}
			c.wantConditions(kubelet, said(effective))
		})
	}
}

func TestConditionsOfOthersSurviveARace(t *testing.T) {
	t.Parallel()
	pressure := corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}
	rows := map[string]struct {
		have   []corev1.NodeCondition
		change func(*corev1.Node)
		want   []corev1.NodeCondition
	}{
		"one comes in front of ours": {
			[]corev1.NodeCondition{kubelet, said(conflict)},
			func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{kubelet, pressure, said(conflict)}
			},
			[]corev1.NodeCondition{kubelet, pressure, said(effective)},
		},
		"another agent adds ours": {
			[]corev1.NodeCondition{kubelet},
			func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions,
					said(conflict))
			},
			[]corev1.NodeCondition{kubelet, said(effective)},
		},
		"the first one comes": {
			nil,
			func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{kubelet} },
			[]corev1.NodeCondition{kubelet, said(effective)},
		},
		"ours is removed": {
			[]corev1.NodeCondition{said(conflict), kubelet},
			func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{kubelet} },
			[]corev1.NodeCondition{kubelet, said(effective)},
		},
	}
	for title, row := range rows {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c, node := newCluster(t, withConditions(row.have...))
			c.before(1, row.change)
			if written, err := node.Report(t.Context(), effective); err != nil || !written {
				t.Fatalf("written: %v, error %v", written, err)
			}
			c.wantConditions(row.want...)
		})
	}
}
