package netconf

import (
	"encoding/json"
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
)

// Given is what the runtime adds to the configuration for one call.
type Given struct {
	Network     string              // the network's name; "" if the runtime does not give it
	Version     string              // of the protocol
	PrevResult  json.RawMessage     // nil without one
	Annotations map[string]string   // the pod's; nil: not passed
	Nameservers []netip.Addr        // the pod's; nil: not passed
	Attachments []record.Attachment // those that are still valid, for GC
	Listed      bool                // whether they were passed
}

// The capabilities that the plugin's entry declares, and what the runtime then adds to
// runtimeConfig.
const (
	AnnotationsCapability = "io.kubernetes.cri.pod-annotations"
	DNSCapability         = "dns"
)

func (c *Conf) readGiven(top map[string]json.RawMessage) {
	c.read(top, "name", &c.Network)
	c.read(top, "cniVersion", &c.Version)
	if raw := top["prevResult"]; string(raw) != "null" {
		c.PrevResult = raw
	}
	var runtime map[string]json.RawMessage
	c.read(top, "runtimeConfig", &runtime)

	var annotations map[string]string
	if c.read(runtime, AnnotationsCapability, &annotations) && len(annotations) > 0 {
		// the kubelet sets some on every pod: none means that they were not passed on
		c.Annotations = annotations
	}
	var dns struct {
		Servers []string `json:"servers"` // containerd writes the keys with a capital
	}
	c.read(runtime, DNSCapability, &dns)
	for _, text := range dns.Servers {
		if server, err := netip.ParseAddr(text); err == nil {
			c.Nameservers = append(c.Nameservers, server)
			continue
		}
		c.warn("nameserver %q: want an address: ignored", text)
	}
	c.readAttachments(top)
}

// readAttachments reads the list for GC. Its key was called otherwise in the first text of the
// specification.
func (c *Conf) readAttachments(top map[string]json.RawMessage) {
	for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		var list []struct {
			Container string `json:"containerID"`
			Interface string `json:"ifname"`
		}
		if c.Listed = c.read(top, key, &list); !c.Listed {
			continue
		}
		for _, a := range list {
			c.Attachments = append(c.Attachments,
				record.Attachment{Container: a.Container, Interface: a.Interface})
		}
		return
	}
}

// read decodes a key, and reports whether it could. A runtime that breaks a form must not hold up
// pods that are not ours.
func (c *Conf) read(from map[string]json.RawMessage, key string, into any) bool {
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
