package apiserver

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// client speaks to the server as client-go does.
func client(t *testing.T, s *Server, form string) *rest.RESTClient {
	t.Helper()
	config := s.Config()
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api",
		&corev1.SchemeGroupVersion, codecs.WithoutConversion()
	config.AcceptContentTypes, config.ContentType = form, form
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Client.CloseIdleConnections)
	return c
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web"}}},
	}
}

// next returns what a watch tells next, in short.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			return "over"
		}
		if status, ok := event.Object.(*metav1.Status); ok {
			return fmt.Sprint(event.Type, " ", status.Code)
		}
		o := event.Object.(object)
		return fmt.Sprint(event.Type, " ", o.GetName(), " at ", o.GetResourceVersion(), " ",
			len(o.GetAnnotations()))
	case <-time.After(30 * time.Second):
		t.Fatal("a watch is silent")
		return ""
	}
}

func TestListsAndWatches(t *testing.T) {
	t.Parallel()
	for _, form := range []string{jsonType, runtime.ContentTypeProtobuf} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			c := client(t, s, form)
			s.Put(pod("a", "here"), pod("b", "there"))
			options := metav1.ListOptions{FieldSelector: "spec.nodeName=here"}
			request := func(options metav1.ListOptions) *rest.Request {
				return c.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec)
			}
			list := &corev1.PodList{}
			if err := request(options).Do(t.Context()).Into(list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 1 || list.Items[0].Name != "a" || list.ResourceVersion != "2" {
				t.Errorf("listed %+v, want a at version 2", list)
			}

			open := func(options metav1.ListOptions) watch.Interface {
				options.Watch = true
				w, err := request(options).Watch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Stop)
				return w
			}
			options.ResourceVersion = "2"
			w := open(options)
			moved := pod("b", "here")
			s.Put(pod("a", "here"), pod("c", "there"), moved)
			s.Remove(moved)
			var got []string
			for range 3 {
				got = append(got, next(t, w))
			}
			options.ResourceVersion, options.AllowWatchBookmarks = "", true
			options.ResourceVersionMatch, options.SendInitialEvents =
				metav1.ResourceVersionMatchNotOlderThan, new(true)
			streamed := open(options)
			got = append(got, next(t, streamed), next(t, streamed))

			s.Compact()
			expired := open(metav1.ListOptions{ResourceVersion: "2"})
			got = append(got, next(t, expired), next(t, expired))
			s.DropWatches()
			got = append(got, next(t, streamed))
			want := []string{
				"MODIFIED a at 3 0", "ADDED b at 5 0", "DELETED b at 6 0",
				"ADDED a at 3 0", "BOOKMARK  at 6 1",
				"ERROR 410", "over",
				"ERROR 500", // client-go's word for a stream that breaks off
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOlderServersRefuseToStreamLists(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.WithoutWatchLists()
	options := metav1.ListOptions{Watch: true, SendInitialEvents: new(true)}
	_, err := client(t, s, jsonType).Get().Resource("pods").VersionedParams(&options,
		metav1.ParameterCodec).Watch(t.Context())
	if !apierrors.IsInvalid(err) {
		t.Errorf("error %v, want that it is invalid", err)
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	const path, status = "/api/v1/nodes/n", "/api/v1/nodes/n/status"
	tests := map[string]struct {
		kind types.PatchType
		path string
		body string
		code int32  // 0: it is done
		want string // the node's taints and conditions
	}{
		"a test that holds": {types.JSONPatchType, path,
			`[{"op":"test","path":"/spec/taints/0/key","value":"t"},{"op":"remove","path":"/spec/taints/0"}]`, 0, "0 1"},
		"a test that does not": {types.JSONPatchType, path,
			`[{"op":"test","path":"/spec/taints/0/key","value":"other"},{"op":"remove","path":"/spec/taints/0"}]`, 422, "1 1"},
		"no patch": {types.JSONPatchType, path, `{}`, 400, "1 1"},
		"an older version": {types.JSONPatchType, path,
			`[{"op":"replace","path":"/metadata/resourceVersion","value":"0"}]`, 409, "1 1"},
		"the status of the node": {types.MergePatchType, status,
			`{"status":{"conditions":[]},"spec":{"taints":[]}}`, 0, "1 0"},
		"a node, not its status": {types.MergePatchType, path,
			`{"status":{"conditions":[]},"spec":{"taints":[]}}`, 0, "0 1"},
		"another node":    {types.MergePatchType, "/api/v1/nodes/other", `{}`, 404, "1 1"},
		"a strategic one": {types.StrategicMergePatchType, path, `{}`, 415, "1 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			s.PutNode(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Spec: corev1.NodeSpec{
					Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}},
			})
			err := client(t, s, jsonType).Patch(test.kind).AbsPath(test.path).
				Body([]byte(test.body)).Do(t.Context()).Error()
			if got := code(err); got != test.code {
				t.Errorf("error %v, want code %d", err, test.code)
			}
			node := s.Node("n")
			if got := fmt.Sprint(len(node.Spec.Taints),
				len(node.Status.Conditions)); got != test.want {
				t.Errorf("taints and conditions %s, want %s", got, test.want)
			}
		})
	}
}

func code(err error) int32 {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status().Code
	}
	return 0
}

func TestEvictions(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Put(pod("a", "here"))
	evict := func(uid string) int32 {
		body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a","namespace":"shop"},
			"deleteOptions":{"preconditions":{"uid":%q}}}`, uid)
		return code(client(t, s, jsonType).Post().Namespace("shop").Resource("pods").Name("a").
			SubResource("eviction").
			Body([]byte(body)).MaxRetries(0).Do(t.Context()).Error())
	}
	got := []int32{evict("other")}
	s.Protect("shop", "a", true)
	got = append(got, evict("a"))
	s.Protect("shop", "a", false)
	if s.Pod("shop", "a") == nil {
		t.Error("it is gone, though it was protected")
	}
	got = append(got, evict("a"), evict("a"))
	want := []int32{http.StatusConflict, http.StatusTooManyRequests, 0, http.StatusNotFound}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if s.Pod("shop", "a") != nil {
		t.Error("it is still there")
	}
}

func TestEventsBelongToTheNamespaceOfTheirObject(t *testing.T) {
	t.Parallel()
	s := Start(t)
	for name, test := range map[string]struct {
		about string
		code  int32
	}{
		"shop":    {"shop", 0},
		"default": {"", 0},
		"other":   {"shop", http.StatusUnprocessableEntity},
	} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"},
			InvolvedObject: corev1.ObjectReference{Namespace: test.about}}
		post := func() int32 {
			return code(client(t, s, runtime.ContentTypeProtobuf).Post().Namespace(name).
				Resource("events").Body(event).Do(t.Context()).Error())
		}
		if got := post(); got != test.code {
			t.Errorf("%s: code %d, want %d", name, got, test.code)
		}
		if got := post(); test.code == 0 && got != http.StatusConflict {
			t.Errorf("%s: code %d for the same again, want that it exists", name, got)
		}
	}
	if got := len(s.Events()); got != 2 {
		t.Errorf("%d events, want 2", got)
	}
}
