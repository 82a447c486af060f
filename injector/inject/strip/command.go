package strip

import (
	"path"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

// command is what istio-init is told, and what it does because of that.
type command struct {
	values   initflags.Values
	policy   redirect.Policy
	bypasses bool // the annotation about init containers is Strip's own
}

// script is what images of istio-init ran before they had a program.
const script = "istio-iptables.sh"

// readCommand reads the command line and the environment of istio-init.
func readCommand(c podtree.Object) (*command, []string) {
	r := newReader()
	r.readEnv(c)
	words := append(r.texts(c, "command"), r.texts(c, "args")...)
	program, args := cut(words)
	switch {
	case r.left < 0:
		r.refuse("its command line and variables come to more than %d bytes: shorten them",
			maxExpanded)
	case len(words) == 0:
		r.refuse("it has neither command nor args: what it does is known to its image only: " +
			"write its flags into args")
	case !slices.Contains([]string{"", script, "istio-iptables", "pilot-agent istio-iptables"},
		program):
		r.refuse("it runs %q: want istio-iptables and its flags, not in a shell", program)
	}
	if len(r.reasons) > 0 {
		return nil, r.reasons
	}
	return r.understand(program, args, podtree.String(c, "image"))
}

// understand reads the flags, once it is known which program has them.
func (r *reader) understand(program string, args []string, image string) (*command, []string) {
	values, err := initflags.Read(args, r.env, nil)
	if err != nil {
		return nil, []string{reason("%v: correct it", err)}
	}
	policy, _, err := initflags.PolicyIn(args, r.env, redirect.Defaults(), nameservers())
	if err != nil {
		return nil, []string{reason("%v: correct it", err)}
	}
	r.readWork(args)
	if values["inbound-capture-port"].Text == "" {
		old := program == "" && strings.Contains(repository(image), "proxy_init")
		switch {
		case old || program == script:
			policy.Ports.Inbound = policy.Ports.Outbound
		case program == "":
			r.refuse("it has no -z, and its image %q does not tell what runs in it: before "+
				"Istio 1.3 the inbound port was then that of -p, since then it is 15006: add -z",
				image)
		}
	}
	if len(r.reasons) > 0 {
		return nil, r.reasons
	}
	return &command{values: values, policy: policy}, nil
}

// readWork refuses flags by which istio-init does something else than write the pod's rules. How it
// writes them, and whether it tries them out, changes nothing for the pod.
func (r *reader) readWork(args []string) {
	work, err := initflags.ReadWork(args, r.env)
	if err != nil {
		r.refuse("%v: correct it", err)
		return
	}
	for _, row := range []struct {
		is   bool
		flag string
	}{
		{work.DryRun, "--dry-run"}, {work.SkipRules, "--skip-rule-apply"},
		{work.CleanupOnly, "--cleanup-only"},
	} {
		if row.is {
			r.refuse("%s has it write no rules, and without it the pod would be redirected: "+
				"remove the flag, or the container", row.flag)
		}
	}
	if work.NetworkNamespace != "" || work.CNIMode {
		r.refuse("--network-namespace %q is not known to be the pod's: remove the flag",
			work.NetworkNamespace)
	}
}

// cut parts the names of programs from the flags behind them.
func cut(words []string) (program string, args []string) {
	n := slices.IndexFunc(words, func(w string) bool { return w == "" || w[0] == '-' })
	if n < 0 {
		n = len(words)
	}
	names := make([]string, n)
	for i, w := range words[:n] {
		names[i] = path.Base(w)
	}
	return strings.Join(names, " "), words[n:]
}

// repository returns the last part of an image's name, without its tag.
func repository(image string) string {
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}
