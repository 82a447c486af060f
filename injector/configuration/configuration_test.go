package configuration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// document is a configuration that says its name.
func document(name string) string {
	return fmt.Sprintf("policy: enabled\ninjectedAnnotations: {example.com/name: %s}\n"+
		"template: |\n  containers:\n  - name: istio-proxy\n    image: example.com/proxy:1\n", name)
}

const broken = "policy: perhaps\n"

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: name},
		Data: data}
}

// A rig is a Configuration, and what it says.
type rig struct {
	*Configuration
	metrics *prometheus.Registry
	logs    *observer.ObservedLogs

	mu       sync.Mutex
	reported []string
}

func start(t *testing.T, o Options) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{metrics: prometheus.NewPedanticRegistry(), logs: logs}
	o.Metrics, o.Log = r.metrics, zap.New(core)
	o.Report = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reported = append(r.reported, short(err))
	}
	r.Configuration = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// short is the part of an error that tells it from others here.
func short(err error) string {
	for _, part := range []string{`want enabled or disabled, got "perhaps"`, "not found",
		"not known yet", "want the key config", "want the key mesh", "no such file",
		"nothing was read yet"} {
		if strings.Contains(fmt.Sprint(err), part) {
			return part
		}
	}
	return fmt.Sprint(err)
}

// inForce is the name of the configuration in force, or why there is none.
func (r *rig) inForce() string {
	cfg, err := r.Current()
	if err != nil {
		return short(err)
	}
	return cfg.InjectedAnnotations["example.com/name"]
}

func (r *rig) reports() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.reported...)
}

func (r *rig) check(t *testing.T, when, inForce string, valid float64) {
	t.Helper()
	if got := r.inForce(); got != inForce {
		t.Errorf("%s: in force is %q, want %q", when, got, inForce)
	}
	if got := testutil.ToFloat64(r.valid); got != valid {
		t.Errorf("%s: valid is %v, want %v", when, got, valid)
	}
}

func fromConfigMaps(api *apiserver.Server, mesh string) Options {
	c := &ConfigMaps{Injector: types.NamespacedName{Namespace: "mesh", Name: "injector"},
		Client: api.Config()}
	if mesh != "" {
		c.Mesh = types.NamespacedName{Namespace: "mesh", Name: mesh}
	}
	return Options{ConfigMaps: c}
}

// pause is longer than a mistake is suffered in silence.
const pause = 3 * refuseAfter

func TestAConfigMapIsInForceAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		put := func(data map[string]string) {
			api.PutObject(configMap("injector", data))
			time.Sleep(pause)
		}
		r := start(t, fromConfigMaps(api, ""))
		r.check(t, "at first", "nothing was read yet", 0)
		time.Sleep(pause)
		r.check(t, "without a ConfigMap", "not found", 0)
		put(map[string]string{"other": "x"})
		r.check(t, "without the key", "want the key config", 0)
		put(map[string]string{"config": document("one")})
		r.check(t, "with one", "one", 1)
		put(map[string]string{"config": document("two")})
		r.check(t, "with another", "two", 1)
		put(map[string]string{"config": broken})
		r.check(t, "with a broken one", "two", 0)
		put(map[string]string{"config": broken, "other": "x"})
		put(map[string]string{"config": document("three")})
		r.check(t, "with the next", "three", 1)
		api.RemoveObject(configMap("injector", nil))
		time.Sleep(pause)
		r.check(t, "when it is gone", "three", 0)
		put(map[string]string{"config": document("three")})
		r.check(t, "when it is back", "three", 1)
		want := []string{"not found", "want the key config", "<nil>",
			`want enabled or disabled, got "perhaps"`, "<nil>", "not found", "<nil>"}
		if diff := cmp.Diff(want, r.reports()); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		if got := r.logs.FilterMessage("refused configuration").Len(); got != 4 {
			t.Errorf("%d refusals in the log, want one for each mistake, 4", got)
		}
		if got := r.logs.FilterMessage("loaded configuration").Len(); got != 4 {
			t.Errorf("%d in the log that were loaded, want 4", got)
		}
	})
}

func TestOfTwoConfigMapsOneComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		r := start(t, fromConfigMaps(api, "istio"))
		api.PutObject(configMap("injector", map[string]string{"config": document("one"),
			"values": "global: {}", "mesh": "defaultConfig: {proxyMetadata: nonsense"}))
		time.Sleep(refuseAfter / 2)
		api.PutObject(configMap("istio", map[string]string{"mesh": "trustDomain: td1"}))
		time.Sleep(pause)
		r.check(t, "both", "one", 1)
		for range 3 { // a mistake that lasts for less than the grace, again and again
			api.PutObject(configMap("istio", map[string]string{"mesh": "enableTracing: perhaps"}))
			time.Sleep(refuseAfter / 2)
			api.PutObject(configMap("istio", map[string]string{"mesh": "trustDomain: td2"}))
			time.Sleep(refuseAfter / 2)
		}
		r.check(t, "changed", "one", 1)
		if cfg, _ := r.Current(); cfg.Mesh == nil || cfg.Mesh.GetTrustDomain() != "td2" {
			t.Errorf("mesh %v, want the last", cfg.Mesh)
		}
		if cfg, _ := r.Current(); cfg.Values["global"] == nil {
			t.Errorf("values %v, want those of the ConfigMap", cfg.Values)
		}
		if got := r.reports(); len(got) > 0 {
			t.Errorf("reports %q, want none", got)
		}
		api.PutObject(configMap("istio", map[string]string{"mesh-two": "x"}))
		time.Sleep(pause)
		if diff := cmp.Diff([]string{"want the key mesh"}, r.reports()); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

// A mistake that others follow is not suffered longer than one.
func TestMistakesAreReportedThoughTheyChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		api.PutObject(configMap("injector", map[string]string{"config": document("one")}))
		r := start(t, fromConfigMaps(api, ""))
		time.Sleep(time.Second)
		for i := range 10 {
			api.PutObject(configMap("injector",
				map[string]string{"config": fmt.Sprintf("policy: wrong%d\n", i)}))
			time.Sleep(refuseAfter / 2)
		}
		if len(r.reports()) == 0 {
			t.Error("nothing was reported")
		}
		r.check(t, "meanwhile", "one", 0)
	})
}

// What was refused is not reported again while it stays as it is, however often it is looked at and
// in whatever order its mistakes are listed: those of a selector come in the order of a map.
func TestMistakesAreReportedOnce(t *testing.T) {
	t.Parallel()
	const many = "neverInjectSelector: [{matchLabels: {a b: '', c d: '', e f: '', g h: ''}}]\n"
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		wrong := configMap("injector", map[string]string{"config": document("one") + many})
		r := start(t, fromConfigMaps(api, ""))
		for i := range 50 {
			wrong.Labels = map[string]string{"look": strconv.Itoa(i)}
			api.PutObject(wrong)
			time.Sleep(pause)
		}
		if got := r.reports(); len(got) != 1 {
			t.Errorf("reports %q, want one", got)
		}
	})
}

func TestAnAPIServerThatIsAwayAtFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apiserver.InMemory(t)
		api.PutObject(configMap("injector", map[string]string{"config": document("one")}))
		api.Break(apiserver.Say(apierrors.NewForbidden(corev1.Resource("configmaps"), "injector",
			errors.New("no right to it"))))
		r := start(t, fromConfigMaps(api, ""))
		time.Sleep(pause)
		_, err := r.Current()
		if !strings.Contains(fmt.Sprint(err), "ConfigMap mesh/injector") ||
			!strings.Contains(fmt.Sprint(err), "no right to it") {
			t.Errorf("error %v, want the object and the cause", err)
		}
		api.Break(nil)
		time.Sleep(time.Minute)
		r.check(t, "at last", "one", 1)
		if got := r.reports(); len(got) > 0 {
			t.Errorf("reports %q, want none: nothing was refused", got)
		}
	})
}

func TestConventionsOfPrometheus(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	c := New(Options{Metrics: reg, Log: zap.NewNop()})
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("error %v, problems %+v", err, problems)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("it runs without documents")
	}
	both := New(Options{Files: &Files{}, ConfigMaps: &ConfigMaps{}, Log: zap.NewNop()})
	if err := both.Run(t.Context()); err == nil {
		t.Error("it runs with two kinds of documents")
	}
}

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after a minute there is still not %s", what)
		}
	}
}

func TestFilesAreInForceAsTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	injector, mesh := filepath.Join(dir, "config"), write("mesh", "trustDomain: td1")
	r := start(t, Options{Files: &Files{Injector: injector, Mesh: mesh}})
	eventually(t, "a refusal", func() bool { return len(r.reports()) == 1 })
	r.check(t, "without a file", "no such file", 0)
	write("config", document("one"))
	eventually(t, "one", func() bool { return r.inForce() == "one" })
	write("config", broken)
	eventually(t, "a refusal of what is broken", func() bool { return len(r.reports()) == 3 })
	r.check(t, "broken", "one", 0)
	write("config", document("two"))
	eventually(t, "two", func() bool { return len(r.reports()) == 4 })
	r.check(t, "mended", "two", 1)
	_, err := r.Current()
	if err != nil {
		t.Fatal(err)
	}
	if testutil.ToFloat64(r.loaded) < float64(time.Now().Add(-time.Hour).Unix()) {
		t.Error("the time of loading is not now")
	}
	write("mesh", "enableTracing: perhaps")
	eventually(t, "a refusal of the mesh", func() bool { return len(r.reports()) == 5 })
	message := r.logs.FilterMessage("refused configuration").All()[2].ContextMap()["error"]
	if !strings.Contains(fmt.Sprint(message), mesh) {
		t.Errorf("error %v, want the file's name", message)
	}
}
