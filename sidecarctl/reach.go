package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// A question is asked of the kernel under a pod: here, if this is the pod's node, else by this
// program in the agent of that node. Its answer there is a list of T, in JSON.
type question[T any] struct {
	command *cobra.Command // whose flags are passed on
	options *options
	here    func(ctx context.Context, at *spot) (T, error)
	pod     func(T) string // that an answer is about
}

// An answer is about one pod.
type answer[T any] struct {
	subject subject
	value   T
	err     error // why there is none
}

// values are those of all answers, or the first error.
func values[T any](answers []answer[T]) ([]T, error) {
	all := make([]T, len(answers))
	for i, one := range answers {
		if one.err != nil {
			return nil, one.err
		}
		all[i] = one.value
	}
	return all, nil
}

// mostAgents is how many are asked at the same time.
const mostAgents = 8

// ask asks about each pod, and answers in their order.
func ask[T any](ctx context.Context, e env, q question[T], subjects []subject) []answer[T] {
	answers := make([]answer[T], len(subjects))
	nodes := map[string][]int{}
	finder := e.newFinder(q.options, subjects)
	for i, s := range subjects {
		answers[i].subject = s
		if s.pod.HostNetwork {
			answers[i].err = fmt.Errorf("%s is in the host's network, which nothing redirects and "+
				"nobody looks into", s.pod.Name)
			continue
		}
		at, err := finder.find(s)
		switch {
		case err == nil:
			value, err := q.here(ctx, at)
			answers[i].value, answers[i].err = value, entering(err)
			at.close()
		case !errors.Is(err, errElsewhere):
			answers[i].err = err
		case s.pod.Node == "":
			answers[i].err = errNoNode(s.pod)
		case s.pod.Object == nil: // what the others are asked about by would have a hole
			answers[i].err = fmt.Errorf("%s: its network namespace was not found here, and by "+
				"its object nobody has to redirect it", s.pod.Name)
		default:
			nodes[s.pod.Node] = append(nodes[s.pod.Node], i)
		}
	}
	var all sync.WaitGroup
	free := make(chan struct{}, mostAgents)
	for node, which := range nodes {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			q.askAgent(ctx, node, which, answers)
		})
	}
	all.Wait()
	return answers
}

// askAgent asks the agent of a node about those pods of the answers that are its.
func (q question[T]) askAgent(ctx context.Context, node string, which []int,
	answers []answer[T]) {
	values, err := q.valuesOf(ctx, node, which, answers)
	if err == nil && len(values) != len(which) {
		err = fmt.Errorf("the agent of node %s answered about %d pods of %d, it may be of another "+
			"version", node, len(values), len(which))
	}
	for k, i := range which {
		answers[i].err = err
		switch name := answers[i].subject.pod.Name; {
		case err != nil:
		case q.pod(values[k]) != name:
			answers[i].err = fmt.Errorf("the agent of node %s was asked about %s and answered "+
				"about %q", node, name, q.pod(values[k]))
		default:
			answers[i].value = values[k]
		}
	}
}

func (q question[T]) valuesOf(ctx context.Context, node string, which []int,
	answers []answer[T]) ([]T, error) {
	agent, err := q.options.agents().On(ctx, node)
	if err != nil {
		return nil, err
	}
	list := struct {
		Kind  string           `json:"kind"`
		Items []map[string]any `json:"items"`
	}{Kind: "PodList"}
	for _, i := range which {
		list.Items = append(list.Items, answers[i].subject.pod.Object)
	}
	manifest, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	values, _, err := onnode.Ask[[]T](ctx, agent, onnode.Call{
		Args: passedOn(q.command, agent), Manifest: manifest})
	return values, err
}

// entering says what it takes to enter a network namespace, if that is what failed.
func entering(err error) error {
	if errors.Is(err, fs.ErrPermission) &&
		strings.HasPrefix(err.Error(), "enter network namespace: ") {
		return fmt.Errorf("%w: this takes root, with the capabilities SYS_ADMIN and NET_ADMIN",
			err)
	}
	return err
}

// A stream is asked of the kernel under one pod, and answers as long as it is listened to.
type stream struct {
	command *cobra.Command // whose flags are passed on
	options *options
	here    func(ctx context.Context, at *spot) error
	read    func(r io.Reader) error // what here writes as JSON
}

// follow has here called on this node, or in the agent of the pod's.
func (e env) follow(ctx context.Context, q stream, s subject) error {
	at, err := e.newFinder(q.options, []subject{s}).find(s)
	if err == nil {
		defer at.close()
		return entering(q.here(ctx, at))
	}
	if !errors.Is(err, errElsewhere) {
		return err
	}
	if s.pod.Node == "" {
		return errNoNode(s.pod)
	}
	agent, err := q.options.agents().On(ctx, s.pod.Node)
	if err != nil {
		return err
	}
	manifest, err := s.pod.Manifest()
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := agent.Run(ctx, onnode.Call{Args: passedOn(q.command, agent), Manifest: manifest,
			Stdout: in})
		ended <- err
		in.CloseWithError(cmp.Or(err, io.EOF))
	}()
	err = q.read(out)
	out.CloseWithError(err) // who writes has to notice that nobody reads
	failed := <-ended
	if failed == nil || ctx.Err() != nil || errors.Is(err, errEnough) || readerGone(err) {
		return err
	}
	return failed // what was read, or not read, follows from it
}

func errNoNode(pod target.Pod) error {
	return fmt.Errorf("%s: it runs on no node yet: see by kubectl describe pod what it waits for",
		pod.Name)
}

// notPassedOn are the flags that are about here.
var notPassedOn = []string{"filename", "namespace", "kubeconfig", "context", "agent-namespace",
	"output", "entry", "node", "all-namespaces", "pid", "netns"}

// passedOn is the command line by which an agent is asked the same.
func passedOn(c *cobra.Command, agent onnode.Agent) []string {
	args := []string{c.Name(), "--output=" + string(view.JSON)}
	if root := agent.Told(hostRootFlag); root != "" && c.Flags().Lookup(hostRootFlag) != nil {
		args = append(args, "--"+hostRootFlag+"="+root)
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		if !slices.Contains(notPassedOn, f.Name) {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return args
}

// hostProc shows the processes of the node: in an agent, if its pod shares their namespace.
const hostProc = "/proc"

// path is where the flags say that the network namespace is.
func (o *options) path() string {
	if o.pid != 0 {
		return fmt.Sprintf("%s/%d/ns/net", hostProc, o.pid)
	}
	return o.netns
}

// hostRootFlag says where an agent has the host's root directory.
const hostRootFlag = "host-root"

// errElsewhere says that a pod is not on this node, as far as can be seen.
var errElsewhere = errors.New("it is on another node")

// placeFlags adds the flags that say which network namespace is meant, on this node.
func (o *options) placeFlags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.pid, "pid", 0, "the network namespace of this process, on this node")
	f.StringVar(&o.netns, "netns", "", "the network namespace at this path, on this node")
	f.StringVar(&o.hostRoot, hostRootFlag, "", "the host's root directory")
	_ = f.MarkHidden(hostRootFlag) // it is there
}
