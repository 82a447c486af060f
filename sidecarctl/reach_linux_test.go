package main

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// recordedIn is the record of the pod web-0, which is in a network namespace.
func recordedIn(t *testing.T, pod *netns.Pod) record.Record {
	t.Helper()
	r := started(t)
	id, err := podns.Identify(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	r.Netns = record.Netns{Path: pod.Path(), Device: id.Device, Inode: id.Inode}
	return r
}

// The kernel is asked in the agent of a pod's node, which finds the pod's network namespace.
func TestKernelsAreAskedByTheAgent(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	pod.Do(t, func() {
		if _, err := nftables.Apply(t.Context(), redirect.Compile(started(t).Policy)); err != nil {
			t.Fatal(err)
		}
	})
	pod.Dial(t, netns.Call{Network: "udp", To: netip.MustParseAddrPort("192.0.2.7:53")})
	c := &apiServer{objects: map[string]string{webPath: web("")},
		dirs: nodeDirs(t, `{"type": "sidecar-cni"}`, recordedIn(t, pod))}
	for name, row := range map[string]struct {
		args []string
		want string
		code int
	}{
		"watch": {[]string{"shop/web-0", "--existing", "--count=1"},
			"UDP 192.0.2.7:53 not redirected", 0},
		"rules": {[]string{"shop/web-0", "--kernel"}, "redirect to :15001", 0},
		"trace": {[]string{"shop/web-0", "--live", "--to", "192.0.2.7:80"},
			"The kernel took it through the same 4 rules.", 0},
		"verify": {[]string{"shop/web-0"}, "nobody listens", exitAmiss},
	} {
		out, stderr, code := c.ask(t, append([]string{name}, row.args...)...)
		if code != row.code || !strings.Contains(out, row.want) {
			t.Errorf("%s: %d, %s%s; want %d, %s", name, code, out, stderr, row.code, row.want)
		}
	}
}

// Of a network namespace that nobody has recorded there is nothing to play.
func TestNamespacesOfNobody(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	for _, how := range []string{"--live", "--wait"} {
		_, stderr, code := run(t.Context(), "", "trace", "--netns", pod.Path(), how,
			"--to=192.0.2.7:80")
		if code != exitError || !strings.Contains(stderr, "no record says which pod's it is") {
			t.Errorf("%s: %d, %s", how, code, stderr)
		}
	}
}

// All pods of a node or of the cluster: those that nobody redirects, and those that cannot be
// looked at, are rows beside the others.
func TestVerifyMany(t *testing.T) {
	t.Parallel()
	pod := redirected(t)
	open := netns.NewPod(t, netns.Options{})
	of := func(name, uid string) string {
		return strings.NewReplacer("web-0", name, "5b0c", uid).Replace(web(""))
	}
	left := recordedIn(t, open)
	left.Container, left.Pod.Name, left.Pod.UID = "0pen", "open", "0be2"
	c := &apiServer{objects: map[string]string{"/api/v1/pods": `{"kind": "PodList", "items": [` +
		strings.Join([]string{of("web-0", "5b0c"), of("open", "0be2"), of("gone", "90ae"),
			strings.Replace(of("bare", "ba4e"), "istio-proxy", "other", 1),
			strings.Replace(of("ended", "e9d"), "Running", "Succeeded", 1),
			strings.Replace(of("evil", "e71"), `"nodeName"`, `"dnsConfig": {"nameservers": ["010.0.0.1"]}, "nodeName"`, 1),
			strings.Replace(of("elsewhere", "e15e"), "node-1", "node-2", 1)}, ",") + `]}`},
		dirs: nodeDirs(t, `{"type": "sidecar-cni"}`, recordedIn(t, pod), left)}
	out, stderr, code := c.ask(t, "verify", "-A")
	if code != exitAmiss {
		t.Fatalf("%d, %s", code, stderr)
	}
	text := flat(out)
	for _, want := range []string{"shop/open", "no rule in its network namespace redirects",
		"shop/gone", "its network namespace was not found", "shop/elsewhere",
		"no agent of sidecar-cni runs on node node-2", "shop/evil", `read it: Pod evil: ` +
			`spec.dnsConfig.nameservers: "010.0.0.1" is not an IP address`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, not := range []string{"shop/bare", "shop/ended"} {
		if strings.Contains(text, not) {
			t.Errorf("%s in\n%s", not, out)
		}
	}
	for line, want := range map[string]string{"-A --node": "want one of them",
		"shop/web-0 -A": "a target, --node and -A: want one"} {
		_, stderr, code := c.ask(t, append([]string{"verify"}, strings.Fields(line)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d, %s", line, code, stderr)
		}
	}
}

// Packets of others are followed until as many were seen as were asked for.
func TestPacketsAreFollowedByTheAgent(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	pod.Do(t, func() {
		if _, err := nftables.Apply(t.Context(), redirect.Compile(started(t).Policy)); err != nil {
			t.Fatal(err)
		}
	})
	c := &apiServer{objects: map[string]string{webPath: web("")},
		dirs: nodeDirs(t, `{"type": "sidecar-cni"}`, recordedIn(t, pod))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, stderr, code := c.ask(t, "trace", "shop/web-0", "--wait", "--count=2",
			"--from=uid:1000", "--to=192.0.2.7:80")
		if code != 0 || strings.Count(out, "The kernel took it through the same 4 rules.") != 2 {
			t.Errorf("%d, %s%s", code, out, stderr)
		}
	}()
	call := netns.Call{As: netns.Identity{UID: 1000, GID: 1000}, Network: "tcp",
		To: netip.MustParseAddrPort("192.0.2.7:80")}
	for {
		select {
		case <-ended:
			return
		default:
			pod.Dial(t, call)
		}
	}
}

// Whoever has enough is still told what it came to, and nothing runs on in the agent.
func TestAWatchThatIsInterrupted(t *testing.T) {
	t.Parallel()
	pod := redirected(t)
	pod.Dial(t, netns.Call{Network: "udp", To: netip.MustParseAddrPort("192.0.2.7:53")})
	c := &apiServer{objects: map[string]string{webPath: web("")},
		dirs: nodeDirs(t, `{"type": "sidecar-cni"}`, recordedIn(t, pod))}
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		e := env{args: []string{"watch", "shop/web-0", "--existing", "--kubeconfig", c.serve(t)},
			stdout: in, stderr: io.Discard}
		code <- e.run(ctx)
		_ = in.Close() // a pipe's always succeeds
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "192.0.2.7:53") {
	}
	interrupt()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if got := <-code; got != 0 || !strings.Contains(last, "events lost") {
		t.Errorf("ended with %d, and said last %q", got, last)
	}
	if err := <-c.ended; err != nil {
		t.Errorf("in the agent: %v", err)
	}
}

// On a node without the API server the recorded pods are verified; a kubeconfig that is wrong is a
// mistake. No t.Parallel: the environment is the test's.
func TestVerifyWithoutTheAPIServer(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HOME"} {
		t.Setenv(name, "")
	}
	pod := redirected(t)
	dirs := nodeDirs(t, `{"type": "sidecar-cni"}`, recordedIn(t, pod))
	for line, row := range map[string]struct {
		out, stderr string
		code        int
	}{
		"verify --node":                   {"shop/web-0", "verified are the pods that were recorded here, 1", 3},
		"verify --node --kubeconfig=none": {"", "read kubeconfig", 1},
	} {
		var out, stderr strings.Builder
		e := env{args: strings.Fields(line), stdout: &out, stderr: &stderr, dirs: dirs, root: true}
		code := e.run(t.Context())
		if code != row.code || !strings.Contains(out.String(), row.out) ||
			!strings.Contains(stderr.String(), row.stderr) {
			t.Errorf("%s: %d, %s%s; want %+v", line, code, out.String(), stderr.String(), row)
		}
	}
}

// What nobody can answer says who could.
func TestPodsThatAreNowhere(t *testing.T) {
	t.Parallel()
	c := &apiServer{objects: map[string]string{webPath: web(""),
		"/api/v1/namespaces/shop/pods/new": strings.ReplaceAll(web(""), `"nodeName": "node-1", `, ""),
		"/apis/apps/v1/namespaces/shop/statefulsets/web": `{"metadata": {"name": "web"}, "spec": ` +
			`{"template": {"spec": {"containers": [{"name": "app"}]}}}}`},
		dirs: nodeDirs(t, `{"type": "sidecar-cni"}`)}
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"not on the agent's node": {[]string{"watch", "shop/web-0"},
			"agent mesh/agent-1 of node node-1: shop/web-0: its network namespace was not found"},
		"on no node": {[]string{"watch", "shop/new"}, "it runs on no node yet"},
		"a template of the cluster": {[]string{"verify", "statefulset/web", "-n", "shop"},
			"is no running pod: name one"},
		"a template":     {[]string{"watch", "-f", "testdata/web.yaml"}, "is no running pod: name one"},
		"a dead process": {[]string{"watch", "--pid", "999999999"}, "there is no such process"},
		"the host's":     {[]string{"watch", "--netns", "/proc/thread-self/ns/net"}, "it is the host's"},
		"no namespace":   {[]string{"watch", "--netns", "testdata/web.yaml"}, "it is no namespace"},
	} {
		out, stderr, code := c.ask(t, row.args...)
		if code != exitError || out != "" || !strings.Contains(stderr, row.want) ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: %d, %s%s; want %s", name, code, out, stderr, row.want)
		}
	}
}

// The name of a pod stands above what is said of it, once.
func TestVerifyPodsThatDoNotRun(t *testing.T) {
	t.Parallel()
	two := deployment("", "", "", "") + "---\n" + deployment("", "", "", "")
	out, stderr, code := run(t.Context(), two, "verify", "-f", "-")
	if code != exitAmiss || strings.Count(out, "shop/web (Deployment)") != 2 ||
		!strings.Contains(out, "  it is no running pod: name one as NAMESPACE/POD") {
		t.Errorf("%d\n%s%s", code, out, stderr)
	}
}
