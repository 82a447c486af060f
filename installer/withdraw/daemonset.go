package withdraw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// daemonSet is the part of a DaemonSet that is of interest.
type daemonSet struct {
	Metadata struct {
		Generation      int64          `json:"generation"`
		ResourceVersion string         `json:"resourceVersion"`
		ManagedFields   []managedField `json:"managedFields"`
	} `json:"metadata"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Template struct {
			Spec struct {
				Containers []container `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Generation int64 `json:"observedGeneration"`
		Desired    int   `json:"desiredNumberScheduled"`
		Updated    int   `json:"updatedNumberScheduled"`
		Ready      int   `json:"numberReady"`
	} `json:"status"`
}

// managedField says who wrote some of an object's fields, and when. What it says about the fields
// is kept as it is.
type managedField map[string]json.RawMessage

func (m managedField) text(key string) string {
	var text string
	_ = json.Unmarshal(m[key], &text) // what is no text is none of ours
	return text
}

type container struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
}

// podList is the part of a list of pods that is of interest.
type podList struct {
	Items []pod `json:"items"`
}

type pod struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string          `json:"nodeName"`
		Containers []container     `json:"containers"`
		Affinity   corev1.Affinity `json:"affinity"`
	} `json:"spec"`
	Status struct {
		Conditions        []corev1.PodCondition `json:"conditions"`
		NominatedNodeName string                `json:"nominatedNodeName"`
	} `json:"status"`
}

// node is the node that the pod runs on, or that the DaemonSet's controller made it for.
func (p pod) node() string {
	if p.Spec.NodeName != "" || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func (p pod) ready() bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// homeless reports whether the scheduler has found that the pod can be on no node, and makes room
// for it on none.
func (p pod) homeless() bool {
	return p.Spec.NodeName == "" && p.Status.NominatedNodeName == "" &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
				c.Reason == corev1.PodReasonUnschedulable
		})
}

// newClient speaks JSON about whatever is asked for by its path.
func newClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &schema.GroupVersion{}
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).
		WithoutConversion()
	config.WarningHandler = rest.NoWarnings{}
	config.QPS = -1 // a few requests a second; a limiter's error would hide the one that says why
	return rest.UnversionedRESTClientFor(config)
}

// withdrawal is about one DaemonSet.
type withdrawal struct {
	client   *rest.RESTClient
	of       Settings
	homeless map[string]time.Time // pods that could be scheduled nowhere, by name, and since when
}

func (w withdrawal) path() string {
	return "/apis/apps/v1/namespaces/" + w.of.Namespace + "/daemonsets/" + w.of.DaemonSet
}

// patch changes the DaemonSet in our own name, and returns it as it is then.
func (w withdrawal) patch(ctx context.Context, kind types.PatchType,
	change any) (daemonSet, error) {
	var d daemonSet
	body, err := json.Marshal(change)
	if err != nil {
		return d, err
	}
	data, err := w.client.Patch(kind).AbsPath(w.path()).Param("fieldManager", manager).Body(body).
		Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return d, fmt.Errorf("patch daemonset %s/%s: %w", w.of.Namespace, w.of.DaemonSet, err)
	}
	return d, nil
}

func (w withdrawal) get(ctx context.Context) (daemonSet, error) {
	var d daemonSet
	data, err := w.client.Get().AbsPath(w.path()).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return d, fmt.Errorf("read daemonset %s/%s: %w", w.of.Namespace, w.of.DaemonSet, err)
	}
	return d, nil
}

// pods lists those of the DaemonSet.
func (w withdrawal) pods(ctx context.Context, d daemonSet) (pods podList, err error) {
	var labels []string
	for key, value := range d.Spec.Selector.MatchLabels {
		labels = append(labels, key+"="+value)
	}
	if len(labels) == 0 {
		return pods, errors.New("its selector has no labels")
	}
	data, err := w.client.Get().AbsPath("/api/v1/namespaces/"+w.of.Namespace+"/pods").
		Param("labelSelector", strings.Join(labels, ",")).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &pods)
	}
	return pods, err
}
