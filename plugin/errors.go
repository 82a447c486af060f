package main

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/refusal"
	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// fault is a kind of refusal: its number in the CNI result, its word in logs and metrics, and what
// to do about it.
type fault struct {
	code   uint
	word   string
	about  string
	remedy string
}

// The faults. Below 100 the numbers are the CNI specification's.
var (
	badConf = fault{types.ErrInvalidNetworkConfig, "bad_configuration",
		"the plugin's configuration has a wrong value, and the pod is ours",
		"correct the sidecar-cni entry in the node's CNI configuration; if the installer wrote " +
			"it, its values"}
	badNetns = fault{types.ErrInvalidNetNS, "bad_namespace",
		"CNI_NETNS is the host's own network namespace, or none",
		"have the runtime pass the pod's own network namespace; rules in the host's would " +
			"redirect the node"}
	tryLater = fault{types.ErrTryAgainLater, "no_source",
		"neither the agent nor the API server answered what the pod is, which is or may be ours",
		"check that the sidecar-cni agent runs on this node; the kubelet tries again by itself"}
	tooSlow = fault{types.ErrTryAgainLater, "too_slow",
		"the time for the call was over before the rules were written; nothing was",
		"none if it passes, the kubelet tries again by itself; else look at the load of the " +
			"node, or give `deadline` more time"}
	unavailable = fault{types.ErrPluginNotAvailable, "not_available",
		"STATUS: in this state no meshed pod can start here, and waiting does not help",
		"mend what is named; pods that are not ours start all the same"}
	badPod = fault{100, "bad_annotations",
		"the pod is ours and asks for something impossible",
		"correct the pod's annotations or variables and create it anew"}
	kernelRefused = fault{101, "kernel_refused",
		"the kernel or the host's iptables did not take the rules",
		"load the module or install the program that is named, or choose another backend"}
	denied = fault{102, "denied",
		"the API server refuses the plugin's credential, or the question itself",
		"see what the message names: the credential, its rights, or the server of the kubeconfig"}
	podGone = fault{103, "pod_gone",
		"there is no such pod any more, or another under its name",
		"none if it was deleted or created anew; else delete it"}
	rulesDiffer = fault{104, "rules_differ",
		"CHECK: the pod's rules are not those that ADD programmed",
		"create the pod anew; find out who changed its rules"}
	badState = fault{105, "no_state",
		"the record of what was programmed cannot be written or read",
		"make stateDir a directory that root can write, best on a tmpfs"}
	ownKernel = fault{106, "own_kernel",
		"the pod is ours, and its runtime has a kernel or a network stack of its own, which " +
			"meets no rules",
		"leave istio-init in such pods, or take them out of the mesh; the setting " +
			"runtimeHandlers can have them skipped or allowed"}
	foreignRules = fault{107, "foreign_rules",
		"the pod's network namespace has rules of another tool, or of a backend that was " +
			"configured before",
		"create the pod anew; if that does not help, take the other tool out of the node's chain"}
	brokenResult = fault{types.ErrDecodingFailure, "bad_result",
		"prevResult is no result",
		"look at the plugin that comes before in the chain"}
	ownFault = fault{types.ErrInternal, "internal",
		"a fault in the plugin",
		"report it, together with what the runtime's log shows of the plugin's standard error"}
)

// faults lists them for the reference page.
var faults = []fault{
	brokenResult, badConf, badNetns, tryLater, tooSlow, unavailable, badPod, kernelRefused, denied,
	podGone, rulesDiffer, badState, ownKernel, foreignRules, ownFault,
}

// failure is an error of a kind.
type failure struct {
	fault
	cause error
}

func (f *failure) Error() string { return f.cause.Error() }

func (f *failure) Unwrap() error { return f.cause }

// fail gives an error its kind.
func (f fault) fail(format string, args ...any) error {
	return &failure{f, fmt.Errorf(format, args...)}
}

// classify gives an error its kind, by what it is.
func classify(err error) *failure {
	var known *failure
	var mistakes redirect.Mistakes
	var search *podsource.Error
	var panicked *podns.Panic
	switch {
	case errors.As(err, &panicked): // a fault of ours wherever it happens
		return &failure{ownFault, err}
	case errors.As(err, &known):
		return known
	case errors.As(err, &mistakes):
		return &failure{badPod, err}
	case errors.As(err, &search):
		return &failure{searched(search), err}
	}
	return &failure{ownFault, err}
}

// searched is the kind of a search for the pod that found none. Its text comes with a remedy.
func searched(err *podsource.Error) fault {
	f := tryLater
	switch err.Class {
	case podsource.Gone:
		f = podGone
	case podsource.Denied, podsource.Rejected:
		f = denied
	case podsource.BadConfig, podsource.Unreachable:
	}
	f.remedy = ""
	return f
}

// text is what the runtime is answered, and `kubectl describe pod` shows: the cause and what to do.
func (f *failure) text() string { return refusal.Text(f.cause, f.remedy) }

// result is the failure in the form that CNI wants.
func (f *failure) result() *types.Error { return types.NewError(f.code, f.text(), "") }
