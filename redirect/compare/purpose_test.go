package compare_test

import (
	"slices"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// options returns the default pod with several of the matrix's options.
func options(names ...string) matrix.Request {
	r := matrix.Plain()
	for _, name := range names {
		i := slices.IndexFunc(matrix.Options, func(o matrix.Option) bool { return o.Name == name })
		r = matrix.Options[i].On(r)
	}
	return r
}

// edited returns a ruleset in which the rules of a reason are changed; nil deletes one.
func edited(rs redirect.Ruleset, why string, change func(*redirect.Rule)) redirect.Ruleset {
	rs.Chains = slices.Clone(rs.Chains)
	for i, c := range rs.Chains {
		var rules []redirect.Rule
		for _, r := range c.Rules {
			if r.Why == why && change == nil {
				continue
			}
			if r.Why == why {
				change(&r)
			}
			rules = append(rules, r)
		}
		rs.Chains[i].Rules = rules
	}
	return rs
}

// A mistake about the packets of a difference on purpose is not on purpose.
func TestNoMistakeIsOnPurpose(t *testing.T) {
	t.Parallel()
	dropped := func(r *redirect.Rule) { r.Then = redirect.Action{Verb: redirect.Drop} }
	for name, row := range map[string]struct {
		pod    matrix.Request
		why    string
		change func(*redirect.Rule)
	}{
		"15020 is captured": {matrix.Plain(), "excluded inbound port", func(r *redirect.Rule) {
			r.If.DestinationPort.List = []uint16{15021, 15090}
		}},
		"15020 is dropped": {options("status port"), "excluded inbound port", dropped},
		"the tunnel is dropped": {options("tproxy"),
			"tunnel port, enters the proxy by itself", dropped},
		"no zone for the app's queries": {
			options("tproxy", "include no inbound port", "dns"), "the app asks the proxy", nil},
		"a machine's traffic passes": {options("tproxy", "virtual interface"),
			"virtual interface, its traffic is outbound", nil},
		"no zone for the proxy's queries": {options("dns of unknown nameservers"),
			"the proxy asks the nameserver", nil},
		"queries are dropped": {options("dns of unknown nameservers"),
			"to the resolver of the proxy", dropped},
		"an excluded mapped CIDR is dropped": {options("exclude a mapped CIDR"),
			"excluded outbound CIDR", dropped},
		"an excluded user is dropped": {options("exclude uids"), "excluded user", dropped},
	} {
		other, pod := secondPen(t, row.pod, true)
		rs := redirect.Compile(pod.Policy)
		for _, d := range compare.Separate(compare.Compare(other, simulate.New(rs)), pod) {
			if d.Reason == "" {
				t.Fatalf("%s: differs without the mistake", name)
			}
		}
		wrong := simulate.New(edited(rs, row.why, row.change))
		if !slices.ContainsFunc(compare.Separate(compare.Compare(other, wrong), pod),
			func(d compare.Difference) bool { return d.Reason == "" }) {
			t.Errorf("%s: on purpose, it is said", name)
		}
	}
}
