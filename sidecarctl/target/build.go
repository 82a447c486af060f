package target

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// build returns the pod without its names for people.
func (p parsed) build(path string) (Pod, error) {
	servers, err := addresses(p.more.Spec.DNSConfig.Nameservers,
		path+"spec.dnsConfig.nameservers")
	if err != nil {
		return Pod{}, err
	}
	ips, err := p.ips()
	if err != nil {
		return Pod{}, err
	}
	containers, err := p.containers(path)
	if err != nil {
		return Pod{}, err
	}
	return Pod{
		HostNetwork: p.more.Spec.HostNetwork,
		Phase:       foreign.Name(p.more.Status.Phase),
		Node:        foreign.Name(p.more.Spec.NodeName),
		IPs:         ips,
		DNSPolicy:   foreign.Name(p.more.Spec.DNSPolicy),
		DNSServers:  servers,
		UID:         foreign.Name(p.pod.Metadata.UID),
		NodeUID:     foreign.Name(firstOf(p.more.Metadata.Annotations.Mirror, p.pod.Metadata.UID)),
		Facts:       p.pod.Facts(),
		Containers:  containers,
	}, nil
}

// ips are those of podIPs, which old dumps do not have.
func (p parsed) ips() ([]netip.Addr, error) {
	var words []string
	for _, entry := range p.more.Status.PodIPs {
		words = append(words, entry.IP)
	}
	if len(words) == 0 && p.more.Status.PodIP != "" {
		words = []string{p.more.Status.PodIP}
	}
	return addresses(words, "status.podIPs")
}

func (p parsed) containers(path string) ([]Container, error) {
	declared := slices.Concat(p.more.Spec.InitContainers, p.more.Spec.Containers)
	user := p.pod.Spec.SecurityContext
	ids := map[string]string{}
	for _, s := range slices.Concat(p.more.Status.InitContainerStatuses,
		p.more.Status.ContainerStatuses) {
		_, ids[s.Name], _ = strings.Cut(s.ContainerID, "://")
	}
	var all []Container
	for i, c := range p.pod.Facts().Spec.Containers { // init containers first, too
		container := Container{
			Name: foreign.Name(c.Name), Init: c.Init, Stays: c.Stays,
			RunAsUser: c.RunAsUser, RunAsGroup: c.RunAsGroup, ID: foreign.Name(ids[c.Name]),
		}
		if container.RunAsUser == nil {
			container.RunAsUser = user.RunAsUser
		}
		if container.RunAsGroup == nil {
			container.RunAsGroup = user.RunAsGroup
		}
		for _, port := range declared[i].Ports {
			if port.ContainerPort == 0 {
				return nil, fmt.Errorf("%sspec: container %s: containerPort is missing or 0, "+
					"want a port from 1 to 65535", path, container.Name)
			}
			container.Ports = append(container.Ports, Port{
				Name: foreign.Name(port.Name), Number: port.ContainerPort,
				Protocol: firstOf(foreign.Name(port.Protocol), "TCP"),
			})
		}
		all = append(all, container)
	}
	return all, nil
}
