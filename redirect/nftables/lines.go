package nftables

import "github.com/sidecar-cni/sidecar-cni/redirect"

// Lines returns how many rules of the table a rule becomes.
func Lines(r redirect.Rule) int {
	var tr translator
	return len(tr.rule(r))
}
