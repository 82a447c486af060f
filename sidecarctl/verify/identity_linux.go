package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// loops finds who listens for the proxy and is not exempt from the rules: what it sends comes back.
func (a *Answer) loops(l look) {
	var told []uint32
	for _, port := range a.Ports {
		for _, one := range port.Listeners {
			if slices.Contains(told, one.UID) || l.exempt(one) {
				continue
			}
			told = append(told, one.UID)
			a.Findings = append(a.Findings, loop(port, one, l.policy.Proxy))
		}
	}
}

func loop(port Port, one Listener, proxy redirect.Identity) Finding {
	f := Finding{Wrong: true, Kind: AboutLoop, Process: one.Process,
		What: fmt.Sprintf("uid %d listens on port %d (%s), and the rules exempt %s: what it "+
			"sends comes back to it, again and again", one.UID, port.Number, port.For,
			exempted(proxy)),
		Remedy: "run the container istio-proxy as one of these (securityContext), and create " +
			"the pod anew; if it is no proxy, find out why it has the proxy's port"}
	switch {
	case one.Process != nil:
		f.What = fmt.Sprintf("%s, which listens on port %d (%s), runs as uid %d and gid %d, and "+
			"the rules exempt %s: what it sends comes back to it, again and again",
			one.Process.words(), port.Number, port.For, one.Process.UID, one.Process.GID,
			exempted(proxy))
	case len(proxy.GIDs) > 0:
		f.Wrong = false // its group may be exempt
		f.What += "; its group is not known here"
	}
	return f
}

// exempt reports whether who listens is one of those whose traffic the rules let go.
func (l look) exempt(one Listener) bool {
	if slices.Contains(l.policy.Proxy.UIDs, one.UID) {
		return true
	}
	return one.Process != nil && slices.ContainsFunc(l.processes.all, func(p process) bool {
		return p.shown.PID == one.Process.PID && p.exempt(l.policy.Proxy)
	})
}

// exempted names the proxy's users and groups.
func exempted(proxy redirect.Identity) string {
	var texts []string
	for _, uid := range proxy.UIDs {
		texts = append(texts, fmt.Sprintf("uid %d", uid))
	}
	for _, gid := range proxy.GIDs {
		texts = append(texts, fmt.Sprintf("gid %d", gid))
	}
	return strings.Join(texts, ", ")
}

func (p *Process) words() string {
	text := fmt.Sprintf("process %q (pid %d", p.Name, p.PID)
	if p.Container != "" {
		text += fmt.Sprintf(", container %.12s", p.Container)
	}
	return text + ")"
}

// mostProcesses is how many are named of a pod.
const mostProcesses = 8

// impostors finds the processes that are not the proxy's, and that the rules take for the proxy's.
func (a *Answer) impostors(l look, proxy string) {
	own := a.proxy(l, proxy)
	found := 0
	for i := range l.processes.all {
		p := &l.processes.all[i]
		if !p.exempt(l.policy.Proxy) || own.has(p.shown) {
			continue
		}
		if found++; found > mostProcesses {
			continue
		}
		by := "uid"
		if !common(p.uids, l.policy.Proxy.UIDs) {
			by = "gid"
		}
		a.Findings = append(a.Findings, Finding{Wrong: true, Kind: AboutProcess, Process: &p.shown,
			What: fmt.Sprintf("%s runs as uid %d and gid %d, of which the %s is the proxy's: "+
				"what it sends goes past the proxy", p.shown.words(), p.shown.UID, p.shown.GID, by),
			Remedy: "give its container another runAsUser and runAsGroup than the proxy's"})
	}
	if found > mostProcesses {
		a.Findings = append(a.Findings, Finding{Wrong: true, Kind: AboutProcess,
			What: fmt.Sprintf("and %d processes more", found-mostProcesses)})
	}
}

// A proxyOf tells the proxy's processes from others.
type proxyOf struct {
	containers []string // ids
	pids       []int    // of processes in no container
}

func (x proxyOf) has(p Process) bool {
	if p.Container == "" {
		return slices.Contains(x.pids, p.PID)
	}
	return slices.Contains(x.containers, p.Container)
}

func (x *proxyOf) add(p Process) {
	if p.Container == "" {
		x.pids = append(x.pids, p.PID)
		return
	}
	x.containers = append(x.containers, p.Container)
}

// proxy finds its processes: those of the container that is told, else those of the ones in which
// somebody listens on the proxy's ports, else those of a process that is called as istio's are.
func (a *Answer) proxy(l look, told string) proxyOf {
	if told != "" {
		return proxyOf{containers: []string{told}}
	}
	var x proxyOf
	for _, port := range a.Ports {
		for _, one := range port.Listeners {
			if one.Process != nil {
				x.add(*one.Process)
			}
		}
	}
	named := len(x.containers) == 0
	for _, p := range l.processes.all {
		if named && (p.shown.Name == "envoy" || p.shown.Name == "pilot-agent") {
			x.add(p.shown)
		}
	}
	return x
}
