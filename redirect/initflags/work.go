package initflags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Work is what istio-init is told to do, beside what is redirected.
type Work struct {
	DryRun      bool // print the rules, and write none
	SkipRules   bool // write none
	CleanupOnly bool // remove the rules
	ForceApply  bool // write the rules, though they are there
	Validate    bool // try whether connections are redirected

	// Where the rules go; "": the namespace of the process. With CNIMode it is set.
	NetworkNamespace string
	CNIMode          bool // called by a CNI plugin of the node

	Backend string // one of redirect.Backends; "": none is asked for

	ProbePort    uint16        // on which validation listens beside the proxy's ports
	ProbeTimeout time.Duration // for all of validation
}

const (
	usualProbePort    = 15002
	usualProbeTimeout = 5 * time.Second
	maxProbeTimeout   = 10 * time.Minute
)

// binaries are the values of --force-iptables-binary.
var binaries = map[string]string{
	"": "", "nft": redirect.IptablesNFT, "legacy": redirect.IptablesLegacy,
}

// ReadWork reads what the same command line and the variables say about the work. What cannot be
// read is in Mistakes.
func ReadWork(args []string, env map[string]string) (Work, error) {
	values, err := Read(args, env, nil)
	if err != nil {
		return Work{}, err
	}
	is := func(long string) bool { return values[long].Text == strconv.FormatBool(true) }
	w := Work{
		DryRun: is("dry-run"), SkipRules: is("skip-rule-apply"), CleanupOnly: is("cleanup-only"),
		ForceApply: is("force-apply"), Validate: is("run-validation"), CNIMode: is("cni-mode"),
		NetworkNamespace: values["network-namespace"].Text,
		ProbePort:        usualProbePort, ProbeTimeout: usualProbeTimeout,
	}
	mistakes := values["iptables-probe-port"].port(&w.ProbePort)
	mistakes = append(mistakes, values["probe-timeout"].duration(&w.ProbeTimeout)...)
	binary := values["force-iptables-binary"]
	name, known := binaries[strings.TrimSpace(binary.Text)]
	if !known {
		mistakes = append(mistakes, binary.mistake(binary.Text, "nft or legacy")...)
	}
	w.Backend = name
	if is("native-nftables") {
		w.Backend = redirect.NFTables
	}
	if len(mistakes) > 0 {
		return Work{}, mistakes
	}
	return w, w.contradiction(is("native-nftables") && name != "")
}

// Warnings are sentences about what the same command line and variables say to no effect.
func Warnings(args []string, env map[string]string) ([]string, error) {
	values, err := Read(args, env, nil)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range slices.Concat(flags, workFlags) {
		if v := values[f.long]; v.Unread != "" {
			all = append(all, fmt.Sprintf("%s: %q counts as false: want true or false", v.Key,
				v.Unread))
		}
	}
	everywhere := values["capture-all-dns"]
	if truth := strconv.FormatBool(true); everywhere.Text == truth &&
		values["redirect-dns"].Text != truth {
		all = append(all, everywhere.Key+" has no effect without --redirect-dns")
	}
	return all, nil
}

// contradiction reports flags of which one makes another pointless.
func (w Work) contradiction(backends bool) error {
	const both = "%s and %s contradict each other: leave one of them out"
	switch {
	case w.CleanupOnly && w.DryRun:
		return fmt.Errorf(both, "--cleanup-only", "--dry-run")
	case backends:
		return fmt.Errorf(both, "--native-nftables", "--force-iptables-binary")
	case w.CleanupOnly && w.SkipRules:
		return fmt.Errorf(both, "--cleanup-only", "--skip-rule-apply")
	case w.CleanupOnly && w.ForceApply:
		return fmt.Errorf(both, "--cleanup-only", "--force-apply")
	case w.CleanupOnly && w.Validate:
		return fmt.Errorf(both, "--cleanup-only", "--run-validation")
	case w.ForceApply && w.SkipRules:
		return fmt.Errorf(both, "--force-apply", "--skip-rule-apply")
	case w.CNIMode && w.NetworkNamespace == "":
		return fmt.Errorf("--cni-mode: want --network-namespace, too: the path of the pod's")
	}
	return nil
}

// duration reads how long something may take, if it is given.
func (v Value) duration(to *time.Duration) redirect.Mistakes {
	if v.Text == "" {
		return nil
	}
	d, err := time.ParseDuration(strings.TrimSpace(v.Text))
	if err != nil || d <= 0 || d > maxProbeTimeout {
		return v.mistake(v.Text, "a duration such as 5s, at most 10m")
	}
	*to = d
	return nil
}
