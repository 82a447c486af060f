package iptables

import "github.com/sidecar-cni/sidecar-cni/redirect"

// Lines returns how many rules of a family a rule becomes.
func Lines(r redirect.Rule, f redirect.Family) int { return len(specs(r, f)) }
