package main

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/plugin/record"
)

// given is what the runtime adds to the configuration for one call.
type given struct {
	network     string
	version     string              // of the protocol
	prevResult  json.RawMessage     // nil without one
	annotations map[string]string   // the pod's; nil: not told
	nameservers []netip.Addr        // the pod's; nil: not told
	attachments []record.Attachment // those that are still valid, for GC
	listed      bool                // whether they were told
}

// The capabilities that the plugin's entry declares, and what the runtime then adds to runtimeConfig.
const (
	annotationsCapability = "io.kubernetes.cri.pod-annotations"
	dnsCapability         = "dns"
)

func (c *conf) readGiven(top map[string]json.RawMessage) {
	c.read(top, "name", &c.network)
	c.read(top, "cniVersion", &c.version)
	if raw := top["prevResult"]; string(raw) != "null" {
		c.prevResult = raw
	}
	var runtime map[string]json.RawMessage
	c.read(top, "runtimeConfig", &runtime)

	var annotations map[string]string
	if c.read(runtime, annotationsCapability, &annotations) && len(annotations) > 0 {
		c.annotations = annotations // the kubelet sets some on every pod: none means that they were not passed on
	}
	var dns struct {
		Servers []string `json:"servers"` // containerd writes the keys with a capital
	}
	c.read(runtime, dnsCapability, &dns)
	for _, text := range dns.Servers {
		if server, err := netip.ParseAddr(text); err == nil {
			c.nameservers = append(c.nameservers, server)
			continue
		}
		c.warn("nameserver %q: want an address: ignored", text)
	}
	c.readAttachments(top)
}

// readAttachments reads the list for GC. Its key was called otherwise in the first text of the specification.
func (c *conf) readAttachments(top map[string]json.RawMessage) {
	for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		var list []struct {
			Container string `json:"containerID"`
			Interface string `json:"ifname"`
		}
		if c.listed = c.read(top, key, &list); !c.listed {
			continue
		}
		for _, a := range list {
			c.attachments = append(c.attachments, record.Attachment{Container: a.Container, Interface: a.Interface})
		}
		return
	}
}

// read decodes a key, and reports whether it could. A runtime that breaks a form must not hold up pods that are not ours.
func (c *conf) read(from map[string]json.RawMessage, key string, into any) bool {
	raw, ok := from[key]
	if !ok {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		c.warn("%s: %v: ignored", key, err)
		return false
	}
	return true
}

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
