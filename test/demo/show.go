package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
)

// stage is the node with its pods and what was seen of them.
type stage struct {
	out       io.Writer
	node      *node
	processes []*exec.Cmd
	pods      []*pod
}

func (s *stage) end() {
	for _, p := range s.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	for _, p := range s.pods {
		_ = p.ns.Close()
	}
}

// ways are the connections that are drawn, as they went.
type ways struct{ in, out []hop }

func (s *stage) play(ctx context.Context) error {
	client, address, err := s.attach(ctx, "client", false)
	if err != nil {
		return err
	}
	told := s.node.outcome()
	fmt.Fprintf(s.out, "\nPod demo/client\n  decision   %s: %s\n  took       %s, %d questions to the API server\n",
		told.Msg, redirect.Skip(told.Reason), s.took(), s.node.api.asked)
	if err := s.serve(ctx, client, "app"); err != nil {
		return err
	}
	before, err := s.without(ctx, client, address)
	if err != nil {
		return err
	}
	web, webAddress, err := s.attach(ctx, "web", true)
	if err != nil {
		return err
	}
	rules, err := s.explain(web)
	if err != nil {
		return err
	}
	if err := s.serve(ctx, web, "app", "proxy"); err != nil {
		return err
	}
	after, err := s.try(ctx, client, web, [2]string{address, webAddress})
	if err != nil {
		return err
	}
	s.draw(before, after)
	if err := s.capabilities(web); err != nil {
		return err
	}
	return within(web.ns, func() error {
		problems, err := nftables.Verify(context.Background(), rules)
		fmt.Fprintf(s.out, "\nThe kernel's rules were compared with those above: %d differences.\n", len(problems))
		return err
	})
}

// attach makes a pod and adds it to the network.
func (s *stage) attach(ctx context.Context, name string, injected bool) (*pod, string, error) {
	p, err := newPod(name, injected)
	if err != nil {
		return nil, "", err
	}
	s.pods = append(s.pods, p)
	s.node.api.put(p)
	address, err := s.node.add(ctx, p, true)
	return p, address, err
}

// without makes the same calls in a pod that only bridge has attached.
func (s *stage) without(ctx context.Context, client *pod, address string) (ways, error) {
	p, err := newPod("plain", true)
	if err != nil {
		return ways{}, err
	}
	s.pods = append(s.pods, p)
	own, err := s.node.add(ctx, p, false)
	if err != nil {
		return ways{}, err
	}
	if err := s.serve(ctx, p, "app", "proxy"); err != nil {
		return ways{}, err
	}
	w, err := s.try(ctx, client, p, [2]string{address, own})
	if err != nil {
		return ways{}, err
	}
	return w, s.node.del(ctx, p, false)
}

// serve starts the containers of a pod.
func (s *stage) serve(ctx context.Context, p *pod, roles ...string) error {
	for _, role := range roles {
		uid := uint32(appUser)
		if role == "proxy" {
			uid = proxyUser
		}
		cmd, err := s.node.start(ctx, p, uid, role)
		if err != nil {
			return err
		}
		s.processes = append(s.processes, cmd)
	}
	return nil
}

// try calls the pod from the client, and the client from the pod; addresses are in that order too.
func (s *stage) try(ctx context.Context, client, p *pod, addresses [2]string) (w ways, err error) {
	if w.in, err = s.node.calls(ctx, client, addresses[1]); err != nil {
		return w, err
	}
	w.out, err = s.node.calls(ctx, p, addresses[0])
	return w, err
}

func (s *stage) took() string {
	return fmt.Sprintf("%.1f ms of sidecar-cni, its start included", s.node.last["sidecar-cni"].Seconds()*float64(time.Second/time.Millisecond))
}

// explain prints what was decided for a pod and which rules it has.
func (s *stage) explain(p *pod) (redirect.Ruleset, error) {
	told := s.node.outcome()
	d, err := p.decide()
	if err != nil {
		return redirect.Ruleset{}, err
	}
	rules := redirect.Compile(d.Policy)
	fmt.Fprintf(s.out, "\nPod demo/%s\n  decision   %s with %s, asked the %s\n  took       %s\n  rules\n",
		p.name, told.Msg, told.Backend, map[string]string{"api": "API server", "agent": "agent"}[told.Path], s.took())
	for line := range strings.Lines(redirect.Explain(rules)) {
		if line != "\n" {
			fmt.Fprint(s.out, "    "+line)
		}
	}
	return rules, nil
}

func (s *stage) draw(before, after ways) {
	fmt.Fprint(s.out, "\nA client calls the app in the pod\n")
	s.drawOne("without", "client", before.in)
	s.drawOne("with", "client", after.in)
	fmt.Fprint(s.out, "\nThe app in the pod calls out\n")
	s.drawOne("without", "app", before.out)
	s.drawOne("with", "app", after.out)
}

// drawOne draws a connection as those told it who were in it, from the caller on.
func (s *stage) drawOne(when, caller string, hops []hop) {
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
	fmt.Fprintf(s.out, "  %-8s %-52s %s\n", when, way, note)
}

// capabilities shows what the kernel lets the containers of a pod do.
func (s *stage) capabilities(p *pod) error {
	fmt.Fprintf(s.out, "\nCapabilities of the processes of demo/%s, by the kernel\n", p.name)
	for i, role := range []string{"app", "proxy"} {
		process := s.processes[len(s.processes)-2+i].Process
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Pid))
		if err != nil {
			return err
		}
		var effective uint64
		for line := range strings.Lines(string(status)) {
			if _, err := fmt.Sscanf(line, "CapEff: %x", &effective); err == nil {
				break
			}
		}
		const netAdmin = 1 << 12
		words := "no NET_ADMIN"
		if effective&netAdmin != 0 {
			words = "NET_ADMIN"
		}
		fmt.Fprintf(s.out, "  %-6s %#016x: %s\n", role, effective, words)
	}
	return nil
}
