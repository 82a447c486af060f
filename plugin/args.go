package main

import (
	"strings"

	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
)

// parseArgs reads who the pod is from CNI_ARGS: pairs in any order, of which only these concern us.
func parseArgs(args string) podsource.Ref {
	var ref podsource.Ref
	for pair := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			ref.Namespace = value
		case "K8S_POD_NAME":
			ref.Name = value
		case "K8S_POD_UID":
			ref.UID = value
		}
	}
	return ref
}
