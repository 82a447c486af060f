package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
)

// A server answers each request by the next of its answers, and keeps what it was asked.
type server struct {
	answers []string
	asked   []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.URL.RequestURI())
	answer := "{}"
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	w.Header().Set("Content-Type", "application/json")
	var status metav1.Status
	if json.Unmarshal([]byte(answer), &status) == nil && status.Code > 0 {
		w.WriteHeader(int(status.Code))
	}
	_, _ = fmt.Fprint(w, answer)
}

func (s *server) client(t *testing.T) *rest.RESTClient {
	t.Helper()
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: listening.URL,
		ContentConfig: rest.ContentConfig{
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// expired is what an API server says that has forgotten the state of a list, with where to go on.
func expired(next string) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "code": 410, "status": "Failure",
		"reason": "Expired", "message": "too old", "metadata": {"continue": %q}}`, next)
}

func page(next string, items ...string) string {
	return fmt.Sprintf(`{"metadata": {"continue": %q}, "items": [%s]}`, next,
		strings.Join(items, ", "))
}

func TestEach(t *testing.T) {
	t.Parallel()
	const first = "/api/v1/pods?fieldSelector=f%3D1&labelSelector=l%3D1&limit=500"
	then := func(next string) string {
		return strings.Replace(first, "fieldS", "continue="+next+"&fieldS", 1)
	}
	rows := map[string]struct {
		answers []string
		want    []int
		asked   []string
		err     func(error) bool // nil: there is none
	}{
		"none":      {[]string{page("")}, nil, []string{first}, nil},
		"one page":  {[]string{page("", "1", "2")}, []int{1, 2}, []string{first}, nil},
		"two pages": {[]string{page("n", "1"), page("", "2")}, []int{1, 2}, []string{first, then("n")}, nil},
		"an empty page between": {[]string{page("n"), page("m"), page("", "2")}, []int{2},
			[]string{first, then("n"), then("m")}, nil},
		"its state is forgotten": {[]string{page("n", "1"), expired("m"), page("", "2")}, []int{1, 2},
			[]string{first, then("n"), then("m")}, nil},
		"forgotten on each page": {
			[]string{page("n", "1"), expired("m"), page("o", "2"), expired("p"), page("", "3")},
			[]int{1, 2, 3}, []string{first, then("n"), then("m"), then("o"), then("p")}, nil},
		"forgotten twice at once": {[]string{page("n", "1"), expired("m"), expired("o"), page("", "2")},
			[]int{1}, []string{first, then("n"), then("m")}, apierrors.IsResourceExpired},
		"forgotten, and no way on": {[]string{page("n", "1"), expired(""), page("", "2")},
			[]int{1}, []string{first, then("n")}, apierrors.IsResourceExpired},
		"forbidden": {[]string{`{"kind": "Status", "apiVersion": "v1", "code": 403, "status": "Failure",
			"reason": "Forbidden"}`}, nil, []string{first}, apierrors.IsForbidden},
		"not a list": {[]string{`[]`}, nil, []string{first}, func(err error) bool {
			return strings.Contains(err.Error(), "cannot unmarshal array")
		}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answers: row.answers}
			var got []int
			var failed error
			for one, err := range api.Each[int](t.Context(), s.client(t),
				api.List{Path: api.Path("/api/v1", "", "pods"), Labels: "l=1", Fields: "f=1"}) {
				if failed != nil {
					t.Fatal("something comes behind an error")
				}
				if failed = err; err == nil {
					got = append(got, one)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.asked, s.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if (row.err == nil) != (failed == nil) || failed != nil && !row.err(failed) {
				t.Errorf("error: %v", failed)
			}
		})
	}
}

// Who has seen enough asks for no more.
func TestEachEnds(t *testing.T) {
	t.Parallel()
	s := &server{answers: []string{page("n", "1", "2"), page("", "3")}}
	for one, err := range api.Each[int](t.Context(), s.client(t), api.List{Path: api.Path("/api/v1", "", "pods")}) {
		if one != 1 || err != nil {
			t.Errorf("%d, %v", one, err)
		}
		break
	}
	if diff := cmp.Diff([]string{"/api/v1/pods?limit=500"}, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	if got := strings.Join(api.Path("/api/v1", "", "pods"), "/"); got != "/api/v1/pods" {
		t.Error(got)
	}
	got := strings.Join(api.Path("/apis/apps/v1", "shop", "daemonsets"), "/")
	if got != "/apis/apps/v1/namespaces/shop/daemonsets" {
		t.Error(got)
	}
}

// Whoever chooses a name does not choose what is asked for.
func TestNamesThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	s := &server{}
	client := s.client(t)
	for _, name := range []string{"", ".", "..", "../../pods/evil:80/proxy/x", "a/b", "a%2fb"} {
		if _, err := api.Get(t.Context(), client, "/api/v1", "nodes", name); !errors.Is(err, api.ErrName) {
			t.Errorf("an object %q: %v", name, err)
		}
		if name == "" { // all namespaces
			continue
		}
		for _, err := range api.Each[int](t.Context(), client, api.List{
			Path: api.Path("/api/v1", name, "pods")}) {
			if !errors.Is(err, api.ErrName) {
				t.Errorf("a namespace %q: %v", name, err)
			}
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("asked for %q", s.asked)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	s := &server{answers: []string{`{"a": 1}`, `{"kind": "Status", "apiVersion": "v1", "code": 404,
		"status": "Failure", "reason": "NotFound"}`}}
	client := s.client(t)
	if got, err := api.Get(t.Context(), client, "/api/v1", "nodes", "n"); string(got) != `{"a": 1}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := api.Get(t.Context(), client, "/api/v1", "nodes", "m"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/api/v1/nodes/n", "/api/v1/nodes/m"}, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}
