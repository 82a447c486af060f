package target_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// listedPod is a pod of a list, which has no kind there.
func listedPod(name, more string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q, "namespace": "shop"%s}, "spec": {"nodeName": "n",
		"runtimeClassName": "vm", "containers": [{"name": "app"}]}, "status": {"phase": "Running"}}`,
		name, more)
}

// Whoever has written a pod that cannot be read, it is one of a list whose others are read. What
// has no proxy is kept without its object.
func TestOnNodesOfManyAuthors(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(listedPod("bad", ""), `"nodeName"`,
		`"dnsConfig": {"nameservers": ["010.0.0.1"]}, "nodeName"`, 1)
	meshed := strings.Replace(listedPod("meshed", `, "annotations": {"sidecar.istio.io/status": "{}"}`),
		`{"name": "app"}`, `{"name": "istio-proxy"}`, 1)
	stripped := strings.Replace(listedPod("stripped", ""), `{"name": "app"}`, `{"name": "istio-proxy"}`, 1)
	pods, err := target.OnNodes(t.Context(), serve(t, http.StatusOK, fmt.Sprintf(`{"items": [%s, %s, %s, %s, %s, {}]}`,
		bad, strings.Replace(bad, "Running", "Failed", 1), meshed, stripped, listedPod("other", ""))),
		target.Selection{})
	if err != nil || len(pods) != 4 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	if p := pods[0]; p.Name != "shop/bad" || p.Node != "n" || p.Unread == nil ||
		!strings.Contains(p.Unread.Error(), `"010.0.0.1" is not an IP address`) {
		t.Errorf("%+v", p)
	}
	if pods[1].Unread != nil || pods[1].Object == nil || pods[2].Object == nil ||
		pods[3].Object != nil {
		t.Errorf("%+v", pods[1:])
	}
}

// A list is read to its end, a class of pods is asked about once, and pods that are over are left
// out.
func TestOnNodes(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.URL.Query().Get("continue")+" "+
			r.URL.Query().Get("fieldSelector"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path != "/api/v1/pods":
			fmt.Fprint(w, `{"handler": "runc"}`)
		case r.URL.Query().Get("continue") == "":
			fmt.Fprintf(w, `{"kind": "PodList", "metadata": {"continue": "more"}, "items": [%s, %s]}`,
				listedPod("a", ""), listedPod("leaving", `, "deletionTimestamp": "2026-01-01T00:00:00Z"`))
		default:
			fmt.Fprintf(w, `{"kind": "PodList", "items": [%s, %s, %s]}`, listedPod("b", ""),
				strings.Replace(listedPod("ended", ""), "Running", "Succeeded", 1),
				strings.Replace(listedPod("waiting", ""), `"nodeName": "n",`, "", 1))
		}
	}))
	defer server.Close()
	pods, err := target.OnNodes(t.Context(), client(t, server.URL), target.Selection{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pods {
		got = append(got, p.Name+" "+p.Facts.Spec.RuntimeHandler)
	}
	if diff := cmp.Diff([]string{"shop/a runc", "shop/b runc"}, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	want := []string{"/api/v1/pods  spec.nodeName=n", "/apis/node.k8s.io/v1/runtimeclasses/vm  ",
		"/api/v1/pods more spec.nodeName=n"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestOnNodesOfAnotherServer(t *testing.T) {
	t.Parallel()
	_, err := target.OnNodes(t.Context(), serve(t, http.StatusOK, "<html>"), target.Selection{})
	if err == nil || !strings.Contains(err.Error(), "list pods: the API server's answer is not what was "+
		"asked for: invalid character '<' looking for beginning of value; is there another server at ") {
		t.Error(err)
	}
}

// Where nobody has to log in client-go hands out the client of the whole process.
func TestOthersFollowRedirects(t *testing.T) {
	t.Parallel()
	serve(t, http.StatusOK, "{}")
	if http.DefaultClient.CheckRedirect != nil {
		t.Error("nobody in this process follows redirects any more")
	}
}

func TestOnNodesIsForbidden(t *testing.T) {
	t.Parallel()
	c := serve(t, http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "code": 403,
		"status": "Failure", "reason": "Forbidden", "message": "no"}`)
	_, err := target.OnNodes(t.Context(), c, target.Selection{})
	if err == nil || !strings.Contains(err.Error(), "have a role bound to you with the verb list for pods") {
		t.Error(err)
	}
}
