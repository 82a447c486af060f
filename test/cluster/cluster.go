package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what is in a cluster. Without nodes it is the control plane alone.
type Options struct {
	Nodes    []NodeOptions
	Families Families
}

// A Cluster is a control plane and nodes. It lives as long as its test.
type Cluster struct {
	APIServer                    *Process
	etcd, controllers, scheduler *Process

	families  Families
	kits      map[string]string
	site      *machine // of the control plane
	cgroup    string
	authority *authority
	nodes     []*Node
	images    []Image
	processes []*Process
	config    *rest.Config
	client    kubernetes.Interface
	reported  bool
}

// awaitTimeout is how long anything may take, on a machine that others keep busy.
const awaitTimeout = 10 * time.Minute

// Start starts a cluster and returns when its nodes are ready.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if err := checkRequirements(t.Context()); err != nil {
		t.Fatal(err)
	}
	kits, err := build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := removeStaleCgroups(); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{
		families: o.Families,
		kits:     kits,
		cgroup: fmt.Sprintf("%s%d-%s", cgroupPrefix, os.Getpid(),
			strings.ToLower(rand.Text()[:6])),
		authority: newAuthority(t),
		site:      &machine{path: kits["kube"]},
	}
	if err := c.site.boot(nil, siteScript, c.cgroup); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.end(t) })
	if err := c.layWire(); err != nil {
		t.Fatal(err)
	}
	c.launchControlPlane(t)
	for _, n := range o.Nodes {
		c.launchNode(t, n)
	}
	for _, n := range c.nodes {
		n.join(t)
	}
	c.awaitControlPlane(t)
	for _, n := range c.nodes {
		c.Await(t, n.Name+" to be ready", n.Ready)
	}
	return c
}

// end ends the cluster. A test that failed gets the reasons that the cluster knows.
func (c *Cluster) end(t testing.TB) {
	t.Helper()
	if t.Failed() && !c.reported {
		c.report(t)
	}
	for _, p := range c.processes {
		p.forget()
	}
	for _, n := range c.nodes {
		n.machine.kill()
	}
	c.site.end()
	for _, p := range c.processes {
		if p.settled != nil {
			<-p.settled
		}
	}
	if err := removeCgroup(c.cgroup); err != nil {
		t.Error(err)
	}
}

// Await asks until probe has nothing to complain about. It gives up when one of the cluster's
// processes ends that should run, and after ten minutes, and tells what it heard last and what the
// cluster knows.
func (c *Cluster) Await(t testing.TB, what string, probe func(context.Context) error) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), start.Add(awaitTimeout))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return
		}
		fallen := c.fallen()
		if fallen == nil && ctx.Err() == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
			}
		}
		if fallen == nil { // the machine may have stood still between the last question and the end
			if err = onceMore(t, probe); err == nil {
				return
			}
		}
		c.report(t)
		t.Fatalf("waited %s for %s: %v", time.Since(start).Round(time.Second), what,
			errors.Join(err, fallen))
	}
}

func onceMore(t testing.TB, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return probe(ctx)
}

func (c *Cluster) fallen() error {
	var err error
	for _, p := range c.processes {
		err = errors.Join(err, p.fallen())
	}
	return err
}

func (c *Cluster) process(m *machine, name string, ready func(context.Context) error,
	args ...string) *Process {
	p := &Process{Name: name, cluster: c, machine: m, args: args, ready: ready}
	c.processes = append(c.processes, p)
	return p
}
