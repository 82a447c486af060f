package podsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// Ref names the pod that the runtime talks about.
type Ref struct {
	Namespace, Name string // as the runtime passes them; neither may be empty
	UID             string // empty if the runtime does not pass it: then it is not compared
}

// validate keeps out names that would lead a URL's path elsewhere.
func (r Ref) validate() error {
	for _, name := range []string{r.Namespace, r.Name} {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/%") {
			return fmt.Errorf("namespace %q, name %q: these name no pod", brief(r.Namespace),
				brief(r.Name))
		}
	}
	return nil
}

// String is how people write the pod.
func (r Ref) String() string { return "pod " + brief(r.Namespace) + "/" + brief(r.Name) }

// A question is what the API server is asked for, and how its answer is read.
type question struct {
	path     string // behind the server's URL
	resource string // what the credential has to have the right to get
	take     func(body []byte) answer
}

func (r Ref) question() question {
	path := "/api/v1/namespaces/" + url.PathEscape(r.Namespace) + "/pods/" + url.PathEscape(r.Name)
	return question{path: path, resource: "pods", take: r.take}
}

func handlerQuestion(class string) question {
	path := "/apis/node.k8s.io/v1/runtimeclasses/" + url.PathEscape(class)
	return question{path: path, resource: "runtimeclasses", take: func(body []byte) answer {
		var object struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Handler string `json:"handler"`
		}
		err := json.Unmarshal(body, &object)
		if err != nil || object.Metadata.Name != class || object.Handler == "" {
			return answer{verdict: away, err: errNotClass}
		}
		return answer{handler: object.Handler}
	}}
}

// An answer is what one try at a source brought: the pod or the handler, or a verdict and its
// cause.
type answer struct {
	pod     *kubepod.Pod
	handler string
	verdict verdict
	err     error
	remedy  string
	after   time.Duration // the source wants to be left alone for so long
}

func (a answer) found() bool { return a.pod != nil || a.handler != "" }

// A verdict is what a source made of the question for a pod, if not the pod.
type verdict int

const (
	away          verdict = iota // nothing sensible was heard
	undecided                    // it is there, and does not know yet
	absent                       // no such pod, or another of its name
	unauthorized                 // the credential is not known
	forbidden                    // the credential is known, and not good enough
	rejected                     // it is no question there
	misconfigured                // there is nothing to ask with
)

// take reads a pod, and tells the one that was meant from others of its name and from nonsense. A
// pod without containers is nonsense: it must not pass for one that has no proxy.
func (r Ref) take(body []byte) answer {
	pod, err := kubepod.Parse(body)
	if err != nil {
		return answer{verdict: away, err: fmt.Errorf("%w: %s", errNonsense, brief(err.Error()))}
	}
	switch m := pod.Metadata; {
	case m.Namespace != r.Namespace, m.Name != r.Name, m.UID == "", len(pod.Spec.Containers) == 0:
		return answer{verdict: away, err: errNonsense}
	case r.UID != "" && m.UID != r.UID && !pod.Mirror():
		return answer{verdict: absent, err: r.otherUID(m.UID)}
	default:
		return answer{pod: pod}
	}
}

func (r Ref) otherUID(uid string) error {
	return fmt.Errorf("the pod of that name has uid %q, this sandbox is for uid %q", brief(uid),
		r.UID)
}

// silence is the answer of a source that gave none.
func silence(ctx context.Context, err error) answer {
	if ctx.Err() != nil {
		return answer{verdict: away, err: errSilent}
	}
	return answer{verdict: away, err: plain(err)}
}

// plain drops what net and net/http put around a cause: our error says it already.
func plain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errBroken
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		err = operation.Err
	}
	if text := err.Error(); text != brief(text) {
		return errors.New(brief(text))
	}
	return err
}

// brief makes other people's words fit into an error: one line, and not a long one.
func brief(words string) string {
	const enough = 200
	words = strings.Join(strings.Fields(words), " ")
	if len(words) > enough {
		words = strings.ToValidUTF8(words[:enough], "") + "…"
	}
	return words
}
