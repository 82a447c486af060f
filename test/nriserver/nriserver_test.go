package nriserver_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/test/nriserver"
)

// long is a request timeout that no slow machine needs.
const long = 50 * time.Second

var web = nriserver.Pod{ID: "p1", Name: "web", Namespace: "shop", UID: "u1",
	Annotations:    map[string]string{"sidecar.istio.io/status": "{}"},
	Labels:         map[string]string{"app": "web"},
	RuntimeHandler: "kata", NetnsPath: "/run/netns/web", PID: 17, IPs: []string{"10.0.0.7"}}

func TestPodArrivesAndIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		s := nriserver.Start(t, o)
		p := &plugin{refuse: "rules do not fit"}
		p.connect(t, o.Socket)
		s.AwaitSynchronized(1)
		took, err := s.RunPodSandbox(web)
		if err == nil || !strings.Contains(err.Error(), "rules do not fit") || took <= 0 {
			t.Errorf("RunPodSandbox took %v and returned %v, want the plugin's refusal", took, err)
		}
		app := nriserver.Container{ID: "c1", PodID: "p1", Name: "app", State: nriserver.Created,
			Env: []string{"A=b"}}
		if _, err := s.CreateContainer(web, app); err != nil {
			t.Error(err)
		}
		for _, call := range []func(nriserver.Pod) (time.Duration, error){s.StopPodSandbox,
			s.RemovePodSandbox} {
			if _, err := call(web); err != nil {
				t.Error(err)
			}
		}
		const pod = "shop/web p1 u1 map[sidecar.istio.io/status:{}] map[app:web] kata " +
			"/run/netns/web 17 [10.0.0.7]"
		want := []string{"synchronize [] []", "run " + pod,
			"create " + pod + ": p1 c1 app CONTAINER_CREATED [A=b]", "stop " + pod, "remove " + pod}
		if diff := cmp.Diff(want, p.heard()); diff != "" {
			t.Errorf("what the plugin heard (-want +got):\n%s", diff)
		}
	})
}

func TestSynchronizeTellsWhatRuns(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		s := nriserver.Start(t, o)
		expect := func(pods, containers string) {
			t.Helper()
			before := len(s.AwaitSynchronized(0))
			p := &plugin{}
			disconnect := p.connect(t, o.Socket)
			last := s.AwaitSynchronized(before + 1)[before]
			if last.Err != nil || last.Plugin != "10-guard" || last.Took <= 0 || last.Messages != 1 {
				t.Errorf("Synchronize ended as %+v", last)
			}
			want := []string{"synchronize " + pods + " " + containers}
			if diff := cmp.Diff(want, p.heard()); diff != "" {
				t.Errorf("what the plugin heard (-want +got):\n%s", diff)
			}
			disconnect()
			s.AwaitPlugins()
		}
		db, app := nriserver.Pod{ID: "p2", Name: "db"}, nriserver.Container{ID: "c1", PodID: "p1"}
		expect("[]", "[]")
		s.SetPods([]nriserver.Pod{db}, nil)
		expect("[db]", "[]")
		must(t)(s.RunPodSandbox(web))
		must(t)(s.CreateContainer(web, app))
		expect("[db web]", "[c1]")
		s.Restart()
		expect("[db web]", "[c1]")
		must(t)(s.RemovePodSandbox(web))
		expect("[db]", "[]")
		s.Kill()
		s.SetPods([]nriserver.Pod{web}, nil)
		s.Restart()
		expect("[web]", "[]")
	})
}

// Its messages have a limit of 4 MiB.
func TestLargeSynchronizeArrivesInParts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		var pods []nriserver.Pod
		var containers []nriserver.Container
		env := []string{"LARGE=" + strings.Repeat("x", 10<<10)}
		for i := range 250 {
			pod := nriserver.Pod{ID: fmt.Sprint("p", i), Name: fmt.Sprint("web-", i)}
			pods = append(pods, pod)
			for k := range 3 {
				containers = append(containers, nriserver.Container{
					ID: fmt.Sprint("c", i, "-", k), PodID: pod.ID, State: nriserver.Running, Env: env})
			}
		}
		s := nriserver.Start(t, o)
		s.SetPods(pods, containers)
		p := &plugin{}
		p.connect(t, o.Socket)
		if got := s.AwaitSynchronized(1)[0]; got.Err != nil || got.Messages < 3 {
			t.Errorf("Synchronize ended as %+v, want no error, and parts", got)
		}
		all := strings.Join(p.heard(), "\n")
		for _, one := range []string{"web-0 ", "web-249]", "[c0-0 ", "c249-2]"} {
			if !strings.Contains(all, one) {
				t.Errorf("%q is not among what the plugin heard: %s", one, all)
			}
		}
	})
}

// The second plugin is told of the pod that was starting when it came, as that has then started.
func TestNoSynchronizeWhileAPodStarts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		s := nriserver.Start(t, o)
		slow := &plugin{entered: make(chan struct{}), leave: make(chan struct{})}
		slow.connect(t, o.Socket)
		s.AwaitSynchronized(1)
		started := make(chan error)
		go func() {
			_, err := s.RunPodSandbox(web)
			started <- err
		}()
		<-slow.entered
		second := &plugin{}
		second.connect(t, o.Socket) // returns once it is configured
		s.AwaitPlugins("10-guard", "10-guard")
		close(slow.leave)
		if err := <-started; err != nil {
			t.Error(err)
		}
		s.AwaitSynchronized(2)
		if diff := cmp.Diff([]string{"synchronize [web] []"}, second.heard()); diff != "" {
			t.Errorf("what the second plugin heard (-want +got):\n%s", diff)
		}
	})
}

func TestStoppedRuntimeGoesOn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		s := nriserver.Start(t, o)
		for range 2 { // the first does not change what the second does
			s.Stop()
			answered := make(chan error, 1)
			go func() {
				_, err := s.RunPodSandbox(web)
				answered <- err
			}()
			conn, err := net.Dial("unix", o.Socket)
			if err != nil {
				t.Fatalf("dial stopped runtime: %v", err)
			}
			conn.Close()
			select {
			case err := <-answered:
				t.Errorf("a stopped runtime answered %v", err)
			default:
			}
			s.Cont()
			if err := <-answered; err != nil {
				t.Errorf("a runtime that goes on answered %v", err)
			}
		}
		s.Stop()
		s.Kill()
	})
}

func TestKilledRuntimeComesBack(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		s := nriserver.Start(t, o)
		p := &plugin{}
		p.connect(t, o.Socket)
		s.AwaitSynchronized(1)
		s.Kill()
		<-p.closed
		if _, err := s.RunPodSandbox(web); err == nil {
			t.Error("a killed runtime has run a pod")
		}
		if conn, err := net.Dial("unix", o.Socket); err == nil {
			conn.Close()
			t.Error("a killed runtime accepts connections")
		}
		s.AwaitPlugins()
		s.Restart()
		again := &plugin{}
		again.connect(t, o.Socket)
		s.AwaitSynchronized(2)
		must(t)(s.RunPodSandbox(web))
		if heard := again.heard(); len(heard) != 2 {
			t.Errorf("after the restart the plugin heard %q, want synchronize and run", heard)
		}
		s.Restart() // kills
		<-again.closed
	})
}

func TestPluginIsToldTheRuntime(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o nriserver.Options) {
		set := o
		set.RuntimeName, set.RuntimeVersion = "cri-o", "1.36.0"
		o.RequestTimeout = 0
		for _, row := range []struct {
			options nriserver.Options
			runtime string
			timeout time.Duration
		}{{o, "containerd v2.4.2", 2 * time.Second}, {set, "cri-o 1.36.0", long}} {
			row.options.Socket = socket(t)
			nriserver.Start(t, row.options)
			p := &plugin{}
			p.connect(t, row.options.Socket)
			if p.runtime != row.runtime || p.stub.RequestTimeout() != row.timeout {
				t.Errorf("the plugin was told %s with a timeout of %v, want %s and %v",
					p.runtime, p.stub.RequestTimeout(), row.runtime, row.timeout)
			}
		}
	})
}

func TestValidatorRefusesWithoutThePlugin(t *testing.T) {
	t.Parallel()
	o := nriserver.Options{Socket: socket(t), RequestTimeout: long, Validator: true}
	s := nriserver.Start(t, o)
	pod, app := web, nriserver.Container{ID: "c1", PodID: "p1", Name: "app"}
	must(t)(s.CreateContainer(pod, app)) // nobody asked for the plugin
	pod.Annotations = map[string]string{
		"required-plugins.noderesource.dev/pod": `["guard"]`}
	if _, err := s.CreateContainer(pod, app); err == nil ||
		!strings.Contains(err.Error(), `required plugin "guard" not present`) {
		t.Errorf("without the plugin CreateContainer returned %v", err)
	}
	(&plugin{}).connect(t, o.Socket)
	s.AwaitSynchronized(1)
	must(t)(s.CreateContainer(pod, app))
}

// both runs f with each version of the library.
func both(t *testing.T, f func(*testing.T, nriserver.Options)) {
	for _, version := range []string{"0.12", "0.8"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f(t, nriserver.Options{Version: version, Socket: socket(t), RequestTimeout: long})
		})
	}
}

func must(t *testing.T) func(time.Duration, error) {
	t.Helper()
	return func(_ time.Duration, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri") //nolint:usetesting // with the test in its name it is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "nri.sock")
}
