package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// withdrawTable are the settings of withdraw.
var withdrawTable = []group{{"The DaemonSet", []setting{
	{"daemonset", "sidecar-cni", nil, "Its name.", func(s *settings) any { return &s.daemonSet }},
	{"namespace", "kube-system", nil, "Its namespace.", func(s *settings) any { return &s.namespace }},
	{"timeout", "3m", nil, "How long to wait for the nodes.", func(s *settings) any { return &s.timeout }},
	{"kubeconfig", "", nil, "How to reach the API server. Empty is the pod's ServiceAccount.", func(s *settings) any { return &s.kubeconfig }},
	{"log-level", "info", []string{"debug", "info", "warn", "error"}, "From which level on is logged.", func(s *settings) any { return &s.logLevel }},
}}}

// daemonSet is the part of a DaemonSet that is of interest.
type daemonSet struct {
	Metadata struct {
		Generation int64 `json:"generation"`
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

type container struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
}

// podList is the part of a list of pods that is of interest.
type podList struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			NodeName   string      `json:"nodeName"`
			Containers []container `json:"containers"`
		} `json:"spec"`
		Status struct {
			Conditions []struct {
				Type, Status string
			} `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

// withdraw makes the DaemonSet's pods take their nodes out, and waits for them.
func (c *command) withdraw(ctx context.Context, e env) error {
	client, err := c.settings.rawClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	w := withdrawal{client: client, namespace: c.namespace, name: c.daemonSet}
	if err := w.turn(ctx); apierrors.IsNotFound(err) {
		_, err = fmt.Fprintf(e.stdout, "%v: nothing to take out\n", err)
		return err
	} else if err != nil {
		return err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if out, done := w.done(ctx); done {
			_, err = fmt.Fprintf(e.stdout, "%d nodes are out\n", out)
			return err
		}
		select {
		case <-ctx.Done():
			return w.tellLeft(e.stdout)
		case <-ticker.C:
		}
	}
}

// done reports how many nodes are out, and whether these are all. Pods that were never bound, as those for Fargate's nodes, are
// on no node: nobody waits for them.
func (w withdrawal) done(ctx context.Context) (nodes int, done bool) {
	d, err := w.get(ctx)
	if err != nil || d.Status.Generation < d.Metadata.Generation {
		return 0, false
	}
	pods, err := w.pods(ctx, d)
	if err != nil {
		return 0, false
	}
	unbound := 0
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == "" {
			unbound++
		}
	}
	nodes = d.Status.Desired - unbound
	return nodes, d.Status.Updated >= nodes && d.Status.Ready >= nodes && len(w.left(pods)) == 0
}

// rawClient speaks JSON about whatever is asked for by its path.
func (s *settings) rawClient() (*rest.RESTClient, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &schema.GroupVersion{}
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	config.WarningHandler = rest.NoWarnings{}
	return rest.UnversionedRESTClientFor(config)
}

// withdrawal is about one DaemonSet.
type withdrawal struct {
	client          *rest.RESTClient
	namespace, name string
}

func (w withdrawal) path() string {
	return "/apis/apps/v1/namespaces/" + w.namespace + "/daemonsets/" + w.name
}

func (w withdrawal) get(ctx context.Context) (daemonSet, error) {
	var d daemonSet
	data, err := w.client.Get().AbsPath(w.path()).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return d, fmt.Errorf("read daemonset %s/%s: %w", w.namespace, w.name, err)
	}
	return d, nil
}

// turn replaces the word run by uninstall --stay. All pods are replaced at once: an update that waits for one node after the
// other would wait for one that is down.
func (w withdrawal) turn(ctx context.Context) error {
	d, err := w.get(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c container) bool { return len(c.Args) > 0 && c.Args[0] == "run" })
	if i < 0 {
		if w.turned(d.Spec.Template.Spec.Containers) {
			return nil
		}
		return fmt.Errorf("daemonset %s/%s: no container of it has the argument run", w.namespace, w.name)
	}
	args := append([]string{"uninstall", "--stay"}, d.Spec.Template.Spec.Containers[i].Args[1:]...)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": fmt.Sprintf("/spec/template/spec/containers/%d/args/0", i), "value": "run"},
		{"op": "replace", "path": fmt.Sprintf("/spec/template/spec/containers/%d/args", i), "value": args},
		{"op": "add", "path": "/spec/updateStrategy", "value": map[string]any{
			"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": "100%", "maxSurge": 0},
		}},
	})
	if err != nil {
		return err
	}
	if err := w.client.Patch(types.JSONPatchType).AbsPath(w.path()).Body(patch).Do(ctx).Error(); err != nil {
		return fmt.Errorf("patch daemonset %s/%s: %w", w.namespace, w.name, err)
	}
	return nil
}

func (w withdrawal) turned(containers []container) bool {
	return slices.ContainsFunc(containers, func(c container) bool { return len(c.Args) > 1 && c.Args[0] == "uninstall" && c.Args[1] == "--stay" })
}

// tellLeft names the nodes that are not out.
func (w withdrawal) tellLeft(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), askBound)
	defer cancel()
	left, err := w.leftNow(ctx)
	if err != nil {
		_, err = fmt.Fprintf(out, "the time is over, and it cannot be told which nodes are left: %v\n", err)
		return err
	}
	_, err = fmt.Fprintf(out, "the time is over; these nodes may still have the plugin in their chain: %s\n"+
		"run `sidecar-cni-installer uninstall` there, or remove our entry and the binary by hand\n", strings.Join(left, ", "))
	return err
}

func (w withdrawal) leftNow(ctx context.Context) ([]string, error) {
	d, err := w.get(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := w.pods(ctx, d)
	return w.left(pods), err
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
	data, err := w.client.Get().AbsPath("/api/v1/namespaces/"+w.namespace+"/pods").Param("labelSelector", strings.Join(labels, ",")).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &pods)
	}
	return pods, err
}

// left names the nodes whose pods have not taken them out.
func (w withdrawal) left(pods podList) []string {
	var left []string
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		ready := false
		for _, c := range p.Status.Conditions {
			ready = ready || c.Type == "Ready" && c.Status == "True"
		}
		if !ready || !w.turned(p.Spec.Containers) {
			left = append(left, p.Spec.NodeName)
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}
