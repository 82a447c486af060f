package guard

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// pluginService is the service that runtimes call (pkg/api/api.proto of NRI).
const pluginService = "nri.pkg.api.v1alpha1.Plugin"

// service has the methods that the guard is asked by. For any other the runtime is answered that
// there is none.
func (s *session) service() *ttrpc.ServiceDesc {
	return &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Configure":       method(s, s.configure),
		"Synchronize":     method(s, s.synchronize),
		"RunPodSandbox":   method(s, s.runPodSandbox),
		"StateChange":     method(s, s.stateChange),
		"CreateContainer": method(s, s.createContainer),
		"StartContainer":  method(s, s.startContainer),
		"Shutdown":        method(s, s.shutdown),
	}}
}

// method makes a function one that the runtime can call. A panic is an error, and an error is text
// that can be sent: the runtime is owed an answer, and goes on without one after two seconds.
func method[Request, Response any](s *session,
	do func(context.Context, *Request) (*Response, error),
) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (answer any, err error) {
		s.answering.RLock()
		defer s.answering.RUnlock()
		req := new(Request)
		if err := unmarshal(req); err != nil {
			return nil, err
		}
		err = podns.Guard(func() (err error) {
			answer, err = do(ctx, req)
			return err
		})
		if err != nil && !utf8.ValidString(err.Error()) {
			err = errors.New(strings.ToValidUTF8(err.Error(), "?"))
		}
		return answer, err
	}
}

// shutdown is the runtime's farewell. The connection ends with it.
func (s *session) shutdown(context.Context, *api.Empty) (*api.Empty, error) {
	return &api.Empty{}, nil
}

// A sandbox is what the runtime knows of a pod that decides.
type sandbox struct {
	id, uid string
	pod     redirect.Pod // as far as the runtime knows it

	netns    string // path; "" in the host's network, and if namespaces are not told
	told     bool   // the runtime tells namespaces
	addrs    []netip.Addr
	pid      uint32 // of a process in it that the runtime has started; 0: not known
	handler  string // that runs it; "" is the runtime's usual one
	resolves bool   // the runtime passes the nameservers of its resolv.conf on to plugins
}

// sandbox reads what the runtime says of a pod.
func (s *session) sandbox(pod *api.PodSandbox) sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandboxOf(pod)
}

func (s *session) sandboxOf(pod *api.PodSandbox) sandbox {
	one := sandbox{
		id: pod.GetId(), uid: pod.GetUid(), pid: pod.GetPid(),
		pod: redirect.FromRuntime(pod.GetNamespace(), pod.GetName(),
			pod.GetAnnotations()).Forget(),
		handler: pod.GetRuntimeHandler(), resolves: s.runtime == "containerd",
	}
	for _, text := range pod.GetIps() {
		if addr, err := netip.ParseAddr(text); err == nil {
			one.addrs = append(one.addrs, addr)
		}
	}
	for _, n := range pod.GetLinux().GetNamespaces() {
		one.told = true
		if n.GetType() == "network" {
			one.netns = n.GetPath()
		}
	}
	return one
}
