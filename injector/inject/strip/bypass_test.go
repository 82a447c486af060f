package strip

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const restarts = "restartPolicy"

// What ran in front of the rules keeps the network as it was.
func TestInitContainersInFrontOfTheRulesKeepTheNetwork(t *testing.T) {
	t.Parallel()
	const none = "no annotation"
	const line = `istio-iptables -z 15006 -b * `
	migrate := container("migrate", 2000)
	unknown := container("migrate", -1)
	for name, row := range map[string]struct {
		pod  podtree.Object
		want string // the annotation
		uids redirect.IDs
	}{
		"none": {meshed(line + "-i *"), none, nil},
		"in front": {meshed(line+"-i *", inits(migrate)), "bypass",
			redirect.IDs{{First: 2000, Last: 2000}}},
		"in front, of a native sidecar": {meshed(line+"-i *", inits(migrate), native), "bypass",
			redirect.IDs{{First: 2000, Last: 2000}}},
		"two": {meshed(line+"-i *", inits(migrate, container("b", 2001))), "bypass",
			redirect.IDs{{First: 2000, Last: 2001}}},
		"some CIDRs":    {meshed(line+"-i 10.0.0.0/8", inits(migrate)), "bypass", redirect.IDs{{First: 2000, Last: 2000}}},
		"some ports":    {meshed(line+"-q 80", inits(migrate)), "bypass", redirect.IDs{{First: 2000, Last: 2000}}},
		"nothing":       {meshed(line, inits(unknown)), none, nil},
		"behind":        {meshed(line+"-i *", inits(nil, unknown)), none, nil},
		"validation":    {meshed(line+"-i *", inits(container("istio-validation", -1))), none, nil},
		"nobody":        {meshed(line+"-i *", inits(unknown), both("ISTIO_OUTBOUND_OWNER_GROUPS", "")), none, nil},
		"some groups":   {meshed(line+"-i *", inits(migrate), both("ISTIO_OUTBOUND_OWNER_GROUPS", "7")), "bypass", redirect.IDs{{First: 2000, Last: 2000}}},
		"name service":  {meshed(line, inits(migrate), both("ISTIO_META_DNS_CAPTURE", "true")), "bypass", redirect.IDs{{First: 2000, Last: 2000}}},
		"the author's":  {meshed(line+"-i *", inits(unknown), annotation(keyBypass, "")), "", nil},
		"as the proxy":  {meshed(line+"-i *", inits(container("migrate", 1337))), none, nil},
		"by the pod":    {meshed(line+"-i *", inits(unknown), spec(int64(1337), "securityContext", "runAsUser"), ofProxy(int64(1337), "securityContext", "runAsUser")), none, nil},
		"excluded":      {meshed(line+"-i *", inits(migrate), annotation(keyExcludeUIDs, "2000")), none, redirect.IDs{{First: 2000, Last: 2000}}},
		"behind native": {meshed(line+"-i *", native, inits(nil, unknown)), none, nil},
		"in front, and behind a native sidecar": {meshed(line+"-i *", native,
			inits(migrate, nil, container("later", 2001))), "bypass",
			redirect.IDs{{First: 2000, Last: 2000}}},
		"stays behind": {meshed(line+"-i *", inits(nil, container("logs", 2001, restarts, "Always")),
			native), none, nil},
	} {
		got := stripped(t, row.pod, redirect.Defaults())
		value, ok := podtree.Strings(got, "metadata", "annotations")[keyBypass]
		if !ok {
			value = none
		}
		if value != row.want {
			t.Errorf("%s: %q, want %q", name, value, row.want)
		}
		if diff := cmp.Diff(row.uids,
			policyOf(t, got, redirect.Defaults()).Outbound.ExcludeUIDs); diff != "" {
			t.Errorf("%s: excluded users (-want +got):\n%s", name, diff)
		}
	}
}

func TestInitContainersThatWouldLoseTheNetwork(t *testing.T) {
	t.Parallel()
	const line = `istio-iptables -z 15006 -b * -i *`
	const loses = ` starts before the rules of istio-init and would lose the network without it: want `
	const instead = `; or have a native sidecar as the proxy in front of it; or, if it needs no ` +
		`network, annotate the pod with sidecar-cni.io/initContainers: ""`
	refuses(t, "no user", meshed(line, inits(container("migrate", -1))), []string{
		`init container "migrate"` + loses + `an init container with runAsUser, so that its uid is ` +
			`known` + instead})
	refuses(t, "the app's user", meshed(line, inits(container("migrate", 1000))), []string{
		`init container "migrate"` + loses + `a uid of its own: container "web" runs as 1000 too ` +
			`and would leave the mesh` + instead})
	refuses(t, "no number", meshed(line, inits(container("migrate", 1<<32+1337))), []string{
		`init container "migrate"` + loses + `an init container with runAsUser, so that its uid is ` +
			`known` + instead})
	refuses(t, "a negative number", meshed(line, inits(container("migrate", -1,
		"securityContext", podtree.Object{"runAsUser": int64(1337 - 1<<32)}))), []string{
		`init container "migrate"` + loses + `an init container with runAsUser, so that its uid is ` +
			`known` + instead})
	refuses(t, "by the author", meshed(line, inits(container("migrate", -1)),
		annotation(keyBypass, "bypass")), []string{
		`without it the pod is refused: sidecar-cni.io/initContainers: "migrate": want an init ` +
			`container with runAsUser, so that its uid is known`})
	refuses(t, "stays", meshed(line, inits(container("logs", 2000, restarts, "Always"))), []string{
		`init container "logs" stays and starts before the rules of istio-init: without it, it ` +
			`would have no network until the proxy runs: put it behind a proxy that is a native ` +
			`sidecar; or, if it needs no network, annotate the pod with ` +
			`sidecar-cni.io/initContainers: ""`})
	refuses(t, "on both sides", meshed(line, inits(container("a", 2000), nil,
		container("b", 2001), container("c", 2002, restarts, "Always")), native), []string{
		`init container "b" starts after the rules of istio-init, and "a" before: without it both ` +
			`would be captured or neither: put the two on one side; or, if it needs no network, ` +
			`annotate the pod with sidecar-cni.io/initContainers: ""`})
}
