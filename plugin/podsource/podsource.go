// Package podsource learns the facts of a pod for the plugin: from the node agent, which has them
// in its cache, else from the API server.
//
//	sources := podsource.Sources{AgentSocket: conf.AgentSocket, Kubeconfig: conf.Kubeconfig}
//	found, err := sources.Find(ctx, podsource.Ref{Namespace: "shop", Name: "web-0", UID: uid})
//
// It asks in rounds, with a growing, jittered pause between them. In each round the agent comes
// first, since it may have come back; unless it hands out the pod, the API server is asked too.
//
//	a round brought                        what becomes of it
//	the pod                                found
//	no such pod, or another of that name   again for 2.5 s, since a replica may lag behind; then Gone
//	403, or a request that makes no sense  Denied or Rejected, at once
//	401, or no usable kubeconfig           Denied or BadConfig, at once if the agent answers. While it is away it may
//	                                       be under upgrade, and token and kubeconfig with it: until the deadline
//	anything else                          again until the deadline; then Unreachable
//
// An agent that says there is no such pod outweighs an API server that does not answer; an API
// server that has the pod outweighs the agent.
//
// Be aware:
//   - ctx must have a deadline: without one, Find may ask forever.
//   - A proxy named in the environment is not used: it is the container runtime's.
//   - Kubeconfig, token and certificates are read anew at every try: who renews them needs to tell
//     nobody.
//   - The mirror pod of a static pod has another uid than the runtime has. It counts as found.
//
// The agent's protocol is written down in docs/agent-protocol.md.
package podsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const (
	// with "no such pod", from the first time that it was heard
	goneGrace    = 2500 * time.Millisecond
	firstPause   = 50 * time.Millisecond // between two rounds; doubled each time
	longestPause = time.Second
	agentTimeout = time.Second // of one try, unless a third of the time that is left is less
	apiTimeout   = 3 * time.Second
)

// Sources are where the plugin asks.
type Sources struct {
	AgentSocket string // path
	Kubeconfig  string // path
	Dial        Dial   // reaches both; nil is the network
}

// Dial is what net.Dialer's DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

func (s Sources) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.Dial != nil {
		return s.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Found is a pod that a source knew.
type Found struct {
	Pod  redirect.Pod // complete but for the nameservers
	UID  string       // the object's; of a mirror pod not the one asked for
	From string       // FromAgent or FromAPI
}

// The names of the sources.
const (
	FromAgent = "agent"
	FromAPI   = "api"
)

// Find asks until a source hands out the pod, no further try could help, or ctx ends. Its error is
// an *Error.
func (s Sources) Find(ctx context.Context, ref Ref) (Found, error) {
	if err := ref.validate(); err != nil {
		return Found{}, &Error{Class: Rejected, What: ref.String(), Agent: errNotAsked, API: err,
			Remedy: badRefRemedy}
	}
	search := search{
		what:     ref.String(),
		askAgent: func(ctx context.Context) answer { return s.askAgent(ctx, ref) },
		askAPI:   func(ctx context.Context) answer { return s.askAPI(ctx, ref.question()) },
	}
	found, from, err := search.run(ctx)
	if err != nil {
		return Found{}, err
	}
	return Found{Pod: found.pod.Facts(), UID: found.pod.Metadata.UID, From: from}, nil
}

// Handler asks the API server for the handler of a runtime class, which the source of the pod did
// not know. Its error is an *Error.
func (s Sources) Handler(ctx context.Context, class string) (string, error) {
	search := search{
		what:     fmt.Sprintf("runtime class %q", brief(class)),
		askAgent: func(context.Context) answer { return answer{verdict: away, err: errNoHandler} },
		askAPI:   func(ctx context.Context) answer { return s.askAPI(ctx, handlerQuestion(class)) },
	}
	found, _, err := search.run(ctx)
	// The class is missing, not the pod: the sandbox is not stale.
	if e, ok := errors.AsType[*Error](err); ok && e.Class == Gone {
		e.Class, e.API, e.Remedy = Unreachable, errNoClass, noClassRemedy
	}
	return found.handler, err
}

// A search is one call: what it is for, how the sources are asked, and what each said last.
type search struct {
	what             string
	askAgent, askAPI func(context.Context) answer
	began            time.Time
	agent, api       answer
	apiAfter         time.Time // the API server wants to be left alone until then
	gone             time.Time // when it was first heard that there is no such object
}

// run asks in rounds, until one of them brings what is searched for. It returns which source had
// it.
func (s *search) run(ctx context.Context) (answer, string, error) {
	s.began = time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		round := time.Now()
		if from := s.round(ctx); from == FromAgent {
			return s.agent, from, nil
		} else if from == FromAPI {
			return s.api, from, nil
		}
		if s.settled(round) || !wait(ctx, pause/2+rand.N(pause/2)) {
			return answer{}, "", s.failure()
		}
	}
}

// round asks each source once, and returns the name of the one that has what is searched for; none
// is "".
func (s *search) round(ctx context.Context) string {
	s.agent = ask(ctx, s.askAgent, agentTimeout, s.agent)
	if s.agent.found() {
		return FromAgent
	}
	if time.Now().Before(s.apiAfter) {
		return ""
	}
	s.api = ask(ctx, s.askAPI, apiTimeout, s.api)
	if s.api.found() {
		return FromAPI
	}
	s.apiAfter = time.Now().Add(s.api.after)
	return ""
}

// ask makes one try, bounded so that the other source and further tries have their turn. That a
// source was silent when it had to hurry says less than what it answered last.
func ask(ctx context.Context, source func(context.Context) answer, bound time.Duration,
	last answer) answer {
	hurry := false
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline)/3 < bound {
		bound, hurry = time.Until(deadline)/3, true
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	a := source(ctx)
	if hurry && errors.Is(a.err, errSilent) && last.err != nil {
		return last
	}
	return a
}

// settled reports whether another round, after one that began then, would bring nothing new.
func (s *search) settled(round time.Time) bool {
	switch s.verdict() {
	case absent:
		if s.gone.IsZero() {
			s.gone = round
		}
		return round.Sub(s.gone) >= goneGrace
	case forbidden, rejected:
		return true
	case unauthorized, misconfigured:
		return s.agent.verdict != away
	default:
		return false
	}
}

func (s *search) verdict() verdict {
	if s.agent.verdict == absent {
		return absent
	}
	return s.api.verdict
}

func (s *search) failure() *Error {
	class, remedy := classes[s.verdict()], s.api.remedy
	if class == Gone {
		remedy = goneRemedy
	}
	return &Error{Class: class, What: s.what, Took: time.Since(s.began), Agent: s.agent.err,
		API: s.api.err, Remedy: remedy}
}

// wait reports whether it waited: a pause that would outlast ctx is not begun.
func wait(ctx context.Context, pause time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
