package strip

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// fuzzed returns the pod of a text in JSON, else a usual one whose istio-init has the arguments of
// a line. In that one a:key=value is an annotation, e:NAME=value a variable of istio-init and the
// proxy, and i:NAME=value one of istio-init, each a line of its own.
func fuzzed(text, line, more string) podtree.Object {
	if pod, err := podtree.Decode([]byte(text)); err == nil {
		return pod
	}
	pod := meshed(line)
	for setting := range strings.Lines(more) {
		key, value, _ := strings.Cut(strings.TrimSuffix(setting, "\n"), "=")
		switch where, key, _ := strings.Cut(key, ":"); where {
		case "a":
			annotation(key, value)(pod)
		case "e":
			both(key, value)(pod)
		case "i":
			ofInit(variables(key, value), "env")(pod)
		}
	}
	return pod
}

// Whatever a pod is: it is refused with reasons, and left as it was, or it has the policy that the
// flags asked for and no istio-init any more.
func FuzzStrip(f *testing.F) {
	for _, row := range rows() {
		data, err := json.Marshal(row.pod)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "", "")
		f.Add("", row.args, "a:mine=x\ne:ISTIO_META_DNS_CAPTURE=true\ni:PROXY_UID=1337")
	}
	for _, nasty := range []string{
		"istio-iptables -i $(A)$$$(", "-p 0 -z", "-i 0.0.0.0/0,::/0 -x ::ffff:0.0.0.0/95", "-b *,*",
		"pilot-agent istio-iptables -k lo -c lo,+ -o 0,65535", "-p 53 -z 53 -e 53 -m TPROXY",
		"istio-iptables -d 15020,, -q , -u , -g 0", "-- --", `istio-iptables -x "" -n`,
	} {
		f.Add("", nasty, "i:A=$(A)\na:"+outCIDRs+"=127.0.0.0/8\na:"+keyBypass+"=bypass")
	}
	for _, pod := range []string{
		`{"spec":{"initContainers":[{"name":"istio-init"},{"name":"istio-init"}]}}`,
		`{"spec":{"initContainers":[null,7,{"name":7},{"name":"istio-init","args":[1e300,null]}]}}`,
		`{"metadata":7,"spec":{"initContainers":[{"name":"istio-init","args":["-z","1"],
			"env":[{"name":"A","value":1.5},{}]}],"containers":[{"name":"istio-proxy"}]}}`,
	} {
		f.Add(pod, "", "a:x=y")
	}
	f.Fuzz(func(t *testing.T, text, line, more string) {
		checkStrip(t, fuzzed(text, line, more))
	})
}

func checkStrip(t *testing.T, pod podtree.Object) {
	t.Helper()
	before := podtree.Clone(pod)
	cfg := redirect.Defaults()
	got, found, err := Strip(pod, cfg)
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Fatalf("the pod that was given (-before +after):\n%s", diff)
	}
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		if len(refusal.Reasons) == 0 || !found || !utf8.ValidString(err.Error()) {
			t.Fatalf("found %t, refused for %q", found, refusal.Reasons)
		}
		fallthrough
	case !found && err == nil:
		if diff := cmp.Diff(before, got); diff != "" {
			t.Fatalf("the pod that was not stripped (-before +after):\n%s", diff)
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	if _, again, err := Strip(got, cfg); again || err != nil {
		t.Fatalf("stripped once more: found %t, error %v", again, err)
	}
	inits := podtree.List(before, "spec", "initContainers")
	command, reasons := readCommand(inits[podtree.Named(inits, "istio-init")].(podtree.Object))
	if len(reasons) > 0 {
		t.Fatalf("stripped, in spite of %q", reasons)
	}
	facts, err := factsOf(got)
	if err != nil {
		t.Fatal(err)
	}
	was, would := command.policy, policyOf(t, got, redirect.Defaults())
	relevant(&was, &would, asks(facts, cfg).open)
	would.Outbound.ExcludeUIDs = nil
	if diff := cmp.Diff(was, would, cmpopts.EquateEmpty(),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Fatalf("policy (-istio-init +stripped):\n%s\n%v", diff, before)
	}
}
