package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/chain"
)

// ways are the connections that are drawn, as they went.
type ways struct{ in, out []hop }

func (d *demo) play() {
	client := d.attach(chain.Unmeshed("client"), d.bridge, d.ours)
	fmt.Fprintf(d.out, "\nPod demo/client\n  decision   %s: %s\n  took       %s, %d questions to "+
		"the API server\n",
		d.outcome().Msg, redirect.Skip(d.outcome().Reason), d.took(), d.api.Requests())
	d.start(client, appUser, "app")

	template := d.inject()
	appUID, proxyUID := user(d.t, template, "app"), user(d.t, template, "istio-proxy")
	plain := d.attach(fromTemplate(template, "plain"), d.bridge)
	d.start(plain, appUID, "app")
	d.start(plain, proxyUID, "proxy")
	before := d.try(client, plain)

	web := d.attach(fromTemplate(template, "web"), d.bridge, d.ours)
	rules := d.node.Rules(web.at)
	d.explain(rules)
	app, proxy := d.start(web, appUID, "app"), d.start(web, proxyUID, "proxy")
	d.draw(before, d.try(client, web))

	fmt.Fprint(d.out, "\nCapabilities of the processes of demo/web, by the kernel\n")
	d.capabilities("app", app.Process.Pid)
	d.capabilities("proxy", proxy.Process.Pid)
	fmt.Fprintf(d.out, "\nThe kernel's rules were compared with those above: %d differences.\n",
		len(chain.Verify(d.t, web.ns, rules)))
}

// try calls the pod from the client, and the client from the pod.
func (d *demo) try(client, p *pod) ways {
	return ways{in: d.call(client, p.address), out: d.call(p, client.address)}
}

// outcome is the line that the plugin leaves for each call.
type outcome struct {
	Msg, Reason, Path, Backend string
}

func (d *demo) outcome() outcome {
	var o outcome
	// An empty outcome shows as such.
	_ = json.Unmarshal(bytes.TrimSpace([]byte(d.node.Last("sidecar-cni").Stderr)), &o)
	return o
}

func (d *demo) took() string {
	return fmt.Sprintf("%.1f ms of sidecar-cni, its start included",
		d.node.Last("sidecar-cni").Took.Seconds()*1000)
}

// explain prints what was decided for the pod web and which rules it has.
func (d *demo) explain(rules redirect.Ruleset) {
	o := d.outcome()
	fmt.Fprintf(d.out, "\nPod demo/web\n  decision   %s with %s, asked the %s\n"+
		"  took       %s\n  rules\n",
		o.Msg, o.Backend, map[string]string{"api": "API server", "agent": "agent"}[o.Path],
		d.took())
	for line := range strings.Lines(redirect.Explain(rules)) {
		if line != "\n" {
			fmt.Fprint(d.out, "    "+line)
		}
	}
}

func (d *demo) draw(before, after ways) {
	fmt.Fprint(d.out, "\nA client calls the app in the pod\n")
	d.drawOne("without", "client", before.in)
	d.drawOne("with", "client", after.in)
	fmt.Fprint(d.out, "\nThe app in the pod calls out\n")
	d.drawOne("without", "app", before.out)
	d.drawOne("with", "app", after.out)
}

// drawOne draws a connection as those reported it who were in it, from the caller on.
func (d *demo) drawOne(when, caller string, hops []hop) {
	way := caller
	names := map[string]string{"client": "app", "app": "client"}
	for _, h := range slices.Backward(hops) {
		who := h.Who
		if who == "app" {
			who = names[caller]
		}
		way += fmt.Sprintf(" ──▶ %s :%d", who, h.Port)
	}
	note := "called by " + hops[0].Caller
	if last := hops[len(hops)-1]; last.Wanted != "" {
		note = fmt.Sprintf("meant for %s; %s", last.Wanted, note)
	}
	fmt.Fprintf(d.out, "  %-8s %-52s %s\n", when, way, note)
}

// capabilities shows what the kernel lets a process do.
func (d *demo) capabilities(role string, pid int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		d.t.Fatal(err)
	}
	var effective uint64
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "CapEff: %x", &effective); err == nil {
			break
		}
	}
	words := "no NET_ADMIN"
	if effective&(1<<unix.CAP_NET_ADMIN) != 0 {
		words = "NET_ADMIN"
	}
	fmt.Fprintf(d.out, "  %-6s %#016x: %s\n", role, effective, words)
}
