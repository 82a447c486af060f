// Package podsource learns the facts of a pod for the plugin: from the file in which the node agent
// has written them down, from the agent itself, which has them in its cache, else from the API
// server.
//
//	sources := podsource.Sources{AgentSocket: conf.AgentSocket, Kubeconfig: conf.Kubeconfig,
//		PodFiles: filepath.Dir(conf.AgentSocket)}
//	found, err := sources.Find(ctx, podsource.Ref{Namespace: "shop", Name: "web-0", UID: uid})
//
// A file that an agent vouches for at this moment is all that it takes. Otherwise it asks in
// rounds, with a growing, jittered pause between them. In each round the agent comes first, since
// it may have come back; unless it hands out the pod, the API server is asked too.
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
// Where the pod has a file that nobody vouches for any more, all of that has 3 s, or a third of the
// time if that is less. Then the file counts, with a warning, unless somebody has said that there
// is no such pod, or another of that name: then it goes on without the file.
//
// Be aware:
//   - ctx must have a deadline: without one, Find may ask forever.
//   - A proxy named in the environment is not used: it is the container runtime's.
//   - Kubeconfig, token and certificates are read anew at every try: who renews them needs to tell
//     nobody.
//   - A file that is a link, another's, too large, torn or about another pod is passed over as if
//     there was none.
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

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

const (
	// with "no such pod", from the first time that it was heard
	goneGrace    = 2500 * time.Millisecond
	firstPause   = 50 * time.Millisecond // between two rounds; doubled each time
	longestPause = time.Second
	staleTimeout = 3 * time.Second // where there is a file that is not fresh
)

// A limit is how long one try may take: so long, or such a part of the time that is left.
type limit struct {
	most time.Duration
	part time.Duration
}

var (
	agentLimit = limit{most: time.Second, part: 3}
	apiLimit   = limit{most: 3 * time.Second, part: 3}
	// With a file to fall back on, one server that is slow is better waited for than asked again.
	apiLimitWithFile = limit{most: apiLimit.most, part: 1}
)

// Sources are where the plugin asks.
type Sources struct {
	AgentSocket string // path
	Kubeconfig  string // path
	PodFiles    string // path of the agents' run directory, which has the pods' files; "" is none
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
	From string       // the source: one of those below

	Warning    string // of FromStaleFile: why it had to be that
	PassedOver error  // why the pod's file was not believed; nil if it was, or there is none
}

// The names of the sources.
const (
	FromFile      = protocol.SourceFile
	FromAgent     = protocol.SourceAgent
	FromAPI       = protocol.SourceAPI
	FromStaleFile = protocol.SourceStaleFile
)

// Find asks until a source hands out the pod, no further try could help, or ctx ends. Its error is
// an *Error; beside it, Found says why the file was passed over.
func (s Sources) Find(ctx context.Context, ref Ref) (Found, error) {
	if err := ref.validate(); err != nil {
		return Found{}, &Error{Class: Rejected, What: ref.String(), Agent: errNotAsked, API: err,
			Remedy: badRefRemedy}
	}
	f := s.readFile(ref)
	if f.pod != nil && f.fresh {
		return foundPod(f.pod, FromFile), nil
	}
	search := search{
		what:     ref.String(),
		askAgent: func(ctx context.Context) answer { return s.askAgent(ctx, ref) },
		askAPI:   func(ctx context.Context) answer { return s.askAPI(ctx, ref.question()) },
	}
	if f.pod != nil {
		search.readFile = func() file { return s.readFile(ref) }
	}
	answer, from, err := search.run(ctx)
	if err != nil {
		return Found{PassedOver: f.why}, err
	}
	found := foundPod(answer.pod, from)
	found.PassedOver = f.why
	if from == FromStaleFile {
		found.Warning = search.failure().staleWarning()
	}
	return found, nil
}

func foundPod(pod *kubepod.Pod, from string) Found {
	return Found{Pod: pod.Facts(), UID: pod.Metadata.UID, From: from}
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
	readFile         func() file // nil: there is none to fall back on
	fileAfter        time.Time   // when the file's turn is
	began            time.Time
	agent, api       answer
	apiAfter         time.Time // the API server wants to be left alone until then
	gone             time.Time // when it was first heard that there is no such object
}

// run asks in rounds, until one of them brings what is searched for. It returns which source had
// it.
func (s *search) run(ctx context.Context) (answer, string, error) {
	s.began = time.Now()
	s.fileAfter = s.began.Add(staleTimeout)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline)/3 < staleTimeout {
		s.fileAfter = s.began.Add(time.Until(deadline) / 3)
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		round := time.Now()
		if from := s.round(ctx); from == FromAgent {
			return s.agent, from, nil
		} else if from == FromAPI {
			return s.api, from, nil
		}
		settled, rest := s.settled(round), pause/2+rand.N(pause/2)
		if s.readFile != nil && (settled || time.Until(s.fileAfter) <= rest) {
			if found, from := s.fallBack(); from != "" {
				return found, from, nil
			}
		}
		if settled || !wait(ctx, rest) {
			return answer{}, "", s.failure()
		}
	}
}

// fallBack takes the file, unless somebody has said that there is no such pod. It is tried once,
// and read anew: an agent that took over meanwhile may have brought it up to date, or removed it.
func (s *search) fallBack() (found answer, from string) {
	read := s.readFile
	s.readFile = nil
	if !s.gone.IsZero() {
		return answer{}, ""
	}
	switch f := read(); {
	case f.pod == nil:
		return answer{}, ""
	case f.fresh:
		return answer{pod: f.pod}, FromFile
	default:
		return answer{pod: f.pod}, FromStaleFile
	}
}

// round asks each source once, and returns the name of the one that has what is searched for; none
// is "".
func (s *search) round(ctx context.Context) string {
	limit := apiLimit
	if s.readFile != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, s.fileAfter)
		defer cancel()
		limit = apiLimitWithFile
	}
	s.agent = ask(ctx, s.askAgent, agentLimit, s.agent)
	if s.agent.found() {
		return FromAgent
	}
	if time.Now().Before(s.apiAfter) {
		return ""
	}
	s.api = ask(ctx, s.askAPI, limit, s.api)
	if s.api.found() {
		return FromAPI
	}
	s.apiAfter = time.Now().Add(s.api.after)
	return ""
}

// ask makes one try, bounded so that the other source and further tries have their turn. That a
// source was silent when it had to hurry says less than what it answered last.
func ask(ctx context.Context, source func(context.Context) answer, limit limit,
	last answer) answer {
	bound, hurry := limit.most, false
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline)/limit.part < bound {
		bound, hurry = time.Until(deadline)/limit.part, true
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
