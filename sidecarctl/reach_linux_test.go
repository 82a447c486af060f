package main

import (
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
	}{
		"watch": {[]string{"--existing", "--count=1"}, "UDP 192.0.2.7:53 not redirected"},
		"rules": {[]string{"--kernel"}, "redirect to :15001"},
		"trace": {[]string{"--live", "--to", "192.0.2.7:80"},
			"The kernel took it through the same 4 rules."},
	} {
		args := append([]string{name, "shop/web-0"}, row.args...)
		if out, stderr, code := c.ask(t, args...); code != 0 || !strings.Contains(out, row.want) {
			t.Errorf("%s: %d, %s%s; want %s", name, code, out, stderr, row.want)
		}
	}
}

// What nobody can answer says who could.
func TestPodsThatAreNowhere(t *testing.T) {
	t.Parallel()
	c := &apiServer{objects: map[string]string{webPath: web(""),
		"/api/v1/namespaces/shop/pods/new": strings.ReplaceAll(web(""), `"nodeName": "node-1", `, "")},
		dirs: nodeDirs(t, `{"type": "sidecar-cni"}`)}
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"not on the agent's node": {[]string{"watch", "shop/web-0"},
			"agent mesh/agent-1 of node node-1: shop/web-0: its network namespace was not found"},
		"on no node":     {[]string{"watch", "shop/new"}, "it runs on no node yet"},
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
