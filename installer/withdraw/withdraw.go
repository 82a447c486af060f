// Package withdraw takes all nodes out before the DaemonSet is deleted: it makes the DaemonSet's
// pods run "uninstall --stay", and waits until every node is out.
//
//	err := withdraw.Run(ctx, config, withdraw.Settings{Namespace: "kube-system", DaemonSet: "sidecar-cni", Timeout: 3 * time.Minute}, os.Stdout)
//
// Be aware: what deletes the DaemonSet then must not hang because of a node that is down. So a node
// that is left is no error.
package withdraw

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Settings say which DaemonSet is withdrawn, and how.
type Settings struct {
	Namespace string        // of the DaemonSet and the RoleBinding
	DaemonSet string        // its name
	Binding   string        // a RoleBinding that is deleted at the end; "" for none
	Timeout   time.Duration // for the nodes
}

// Run makes the DaemonSet's pods take their nodes out, waits for them, and writes to out what came
// of it. Nodes that are not out when the time is over are named, and are no error.
func Run(ctx context.Context, config *rest.Config, s Settings, out io.Writer) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	w := withdrawal{client: client, of: s, homeless: map[string]time.Time{}}
	switch err := w.changeWhenAllowed(ctx); {
	case apierrors.IsNotFound(err):
		_, err = fmt.Fprintf(out, "%v: nothing to take out\n", err)
		w.dropBinding(out)
		return err
	case err != nil:
		return err
	}
	if err := w.disown(ctx); err != nil { // the nodes matter more
		fmt.Fprintf(out, "%v: a helm upgrade of this release would need --force-conflicts\n", err)
	}
	err = w.await(ctx, out)
	w.dropBinding(out)
	return err
}

// changeWhenAllowed gives the account's rights some time to take effect, which may be granted only
// when the Job is started.
func (w withdrawal) changeWhenAllowed(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var denied error
	for end := time.Now().Add(grantGrace); ; {
		switch err := w.change(ctx); {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err) && time.Now().Before(end):
			denied = err
		case ctx.Err() != nil:
			return cmp.Or(denied, err) // that the time is over says less
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return denied
		case <-ticker.C:
		}
	}
}

// await waits until all nodes are out, or the time is over.
func (w withdrawal) await(ctx context.Context, out io.Writer) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if nodes, passedOver, done := w.done(ctx); done {
			return reportDone(out, nodes, passedOver)
		}
		select {
		case <-ctx.Done():
			return w.reportLeft(out)
		case <-ticker.C:
		}
	}
}

// dropBinding deletes the RoleBinding that lets this account change the DaemonSet. It is the last
// act: nothing can be done without it. It must not wait for a hook of Helm's, which not everything
// that reads a chart obeys. That it stays is no reason to keep the release.
func (w withdrawal) dropBinding(out io.Writer) {
	if w.of.Binding == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	path := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + w.of.Namespace + "/rolebindings/" +
		w.of.Binding
	if err := w.client.Delete().AbsPath(path).Do(ctx).Error(); err != nil &&
		!apierrors.IsNotFound(err) {
		fmt.Fprintf(out, "delete rolebinding %s/%s: %v; delete it by hand\n", w.of.Namespace,
			w.of.Binding, err)
	}
}

// reportDone says how many nodes are out, and which ones nobody waited for.
func reportDone(out io.Writer, nodes int, passedOver []string) error {
	text := fmt.Sprintf("%d nodes are out\n", nodes)
	if len(passedOver) > 0 {
		text += fmt.Sprintf("no pod of ours could be scheduled on: %s; if an agent was ever "+
			"there, run `sidecar-cni-installer uninstall` there\n",
			strings.Join(passedOver, ", "))
	}
	_, err := io.WriteString(out, text)
	return err
}

// done reports how many nodes are out, which ones nobody waits for, and whether these are all.
func (w withdrawal) done(ctx context.Context) (nodes int, passedOver []string, done bool) {
	d, err := w.get(ctx)
	if err != nil || d.Status.Generation < d.Metadata.Generation {
		return 0, nil, false
	}
	pods, err := w.pods(ctx, d)
	if err != nil {
		return 0, nil, false
	}
	w.note(pods, time.Now())
	passedOver = w.passedOver(pods)
	nodes = d.Status.Desired - len(passedOver)
	return nodes, passedOver,
		d.Status.Updated >= nodes && d.Status.Ready >= nodes && len(w.left(pods)) == 0
}

// requestTimeout is for a request that no longer has the time of the others.
const requestTimeout = 3 * time.Second

// homelessGrace is how long a pod has to have been on no node for nobody to wait for it any more:
// Fargate's and virtual nodes, for which an older chart makes pods, never have one. A node that was
// just made room on, or is about to be, has one by then.
const homelessGrace = 15 * time.Second

// note writes down since when pods have been on no node.
func (w withdrawal) note(pods podList, now time.Time) {
	for _, p := range pods.Items {
		if !p.homeless() {
			delete(w.homeless, p.Metadata.Name)
		} else if _, known := w.homeless[p.Metadata.Name]; !known {
			w.homeless[p.Metadata.Name] = now
		}
	}
}

// passedOver are the nodes whose pods nobody waits for.
func (w withdrawal) passedOver(pods podList) (nodes []string) {
	for _, p := range pods.Items {
		if since, ok := w.homeless[p.Metadata.Name]; ok && time.Since(since) >= homelessGrace {
			nodes = append(nodes, cmp.Or(p.node(), p.Metadata.Name))
		}
	}
	slices.Sort(nodes)
	return nodes
}

// grantGrace is how long withdraw waits for the right to read and change the DaemonSet.
const grantGrace = 20 * time.Second

// manager is whom the API server names as the writer of what withdraw changes.
const manager = "sidecar-cni-withdraw"

// withdrawnAnnotation of the DaemonSet says when it was withdrawn, by the Job's
// clock.
const withdrawnAnnotation = "sidecar-cni.io/withdrawn"

// change replaces the word run by uninstall --stay. All pods are replaced at once: an update that
// waits for one node after the other would wait for one that is down.
func (w withdrawal) change(ctx context.Context) error {
	d, err := w.get(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers,
		func(c container) bool { return len(c.Args) > 0 && c.Args[0] == "run" })
	if i < 0 {
		if w.turned(d.Spec.Template.Spec.Containers) {
			return nil
		}
		return fmt.Errorf("daemonset %s/%s: no container of it has the argument run",
			w.of.Namespace, w.of.DaemonSet)
	}
	since, err := w.announce(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"uninstall", "--stay"}, since...)
	args = append(args, d.Spec.Template.Spec.Containers[i].Args[1:]...)
	_, err = w.patch(ctx, types.JSONPatchType, []map[string]any{
		{"op": "test", "path": fmt.Sprintf("/spec/template/spec/containers/%d/args/0", i),
			"value": "run"},
		{"op": "replace", "path": fmt.Sprintf("/spec/template/spec/containers/%d/args", i),
			"value": args},
		{"op": "add", "path": "/spec/updateStrategy", "value": map[string]any{
			"type":          "RollingUpdate",
			"rollingUpdate": map[string]any{"maxUnavailable": "100%", "maxSurge": 0},
		}},
	})
	return err
}

// announce notes on the DaemonSet that it is withdrawn, and returns the argument by which
// its pods learn when that was: by the clock of the API server, which also says when a pod was
// created.
func (w withdrawal) announce(ctx context.Context) (args []string, err error) {
	// The value is another one each time, so that the patch changes something.
	note := map[string]string{withdrawnAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
	d, err := w.patch(ctx, types.MergePatchType,
		map[string]any{"metadata": map[string]any{"annotations": note}})
	if err != nil {
		return nil, err
	}
	for _, m := range d.Metadata.ManagedFields {
		if at := m.text("time"); m.text("manager") == manager && at != "" {
			args = []string{"--withdrawn=" + at}
		}
	}
	return args, nil
}

// disown gives up the ownership of what was changed, so that whoever installs again with a
// server-side apply, as Helm does, meets no conflict.
func (w withdrawal) disown(ctx context.Context) error {
	const tries = 5 // the controller writes the status meanwhile
	var err error
	for range tries {
		var d daemonSet
		if d, err = w.get(ctx); err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(d.Metadata.ManagedFields),
			func(m managedField) bool { return m.text("manager") == manager })
		// An empty list would make the API server drop all managed fields.
		if len(rest) == len(d.Metadata.ManagedFields) || len(rest) == 0 {
			return nil
		}
		_, err = w.patch(ctx, types.JSONPatchType, []map[string]any{
			{"op": "test", "path": "/metadata/resourceVersion",
				"value": d.Metadata.ResourceVersion},
			{"op": "replace", "path": "/metadata/managedFields", "value": rest},
		})
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("give up the ownership of fields: %w", err)
}

func (w withdrawal) turned(containers []container) bool {
	return slices.ContainsFunc(containers,
		func(c container) bool {
			return len(c.Args) > 1 && c.Args[0] == "uninstall" && c.Args[1] == "--stay"
		})
}

// reportLeft names the nodes that are not out.
func (w withdrawal) reportLeft(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	left, err := w.leftNow(ctx)
	if err != nil {
		_, err = fmt.Fprintf(out,
			"timed out, and the nodes that are left could not be listed: %v\n", err)
		return err
	}
	_, err = fmt.Fprintf(out,
		"timed out; these nodes may still have the plugin in their chain: %s\n"+
			"run `sidecar-cni-installer uninstall` there, or remove our entry and the binary by hand\n",
		strings.Join(left, ", "))
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

// left names the nodes whose pods have not taken them out.
func (w withdrawal) left(pods podList) []string {
	passedOver := w.passedOver(pods)
	var left []string
	for _, p := range pods.Items {
		node := cmp.Or(p.node(), p.Metadata.Name)
		if (p.Spec.NodeName == "" || !p.ready() || !w.turned(p.Spec.Containers)) &&
			!slices.Contains(passedOver, node) {
			left = append(left, node)
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}
