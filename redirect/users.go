package redirect

import (
	"fmt"
	"slices"
	"strconv"
)

// user returns the uid under which a container runs, if the pod says so.
func (s *Spec) user(c Container) (uint32, bool) { return firstID(c.RunAsUser, s.RunAsUser) }

func (s *Spec) group(c Container) (uint32, bool) { return firstID(c.RunAsGroup, s.RunAsGroup) }

func firstID(ids ...*int64) (uint32, bool) {
	for _, id := range ids {
		if id != nil {
			return uint32(*id), *id >= 0 && *id <= maxID
		}
	}
	return 0, false
}

// identity returns the proxy's uids and gids. istio-init gets the uid only and takes the gid to
// be the same number; a proxy that runs as root, as TPROXY and low ports want it, is known by
// its group.
func (s *Spec) identity(cfg Config) Identity {
	proxy, _ := s.proxy()
	uid, ok := s.user(proxy)
	if !ok {
		return cfg.Proxy
	}
	if uid != 0 {
		return Identity{UIDs: []uint32{uid}, GIDs: []uint32{uid}}
	}
	id := cfg.Proxy
	if gid, ok := s.group(proxy); ok && gid != 0 {
		id.GIDs = []uint32{gid}
	}
	return id
}

// proxyUsers lists the uids that are the proxy's. Root is one where it runs the proxy, though the
// rules know it by its group.
func (s *Spec) proxyUsers(rules Identity) []uint32 {
	proxy, _ := s.proxy()
	if uid, ok := s.user(proxy); ok && uid == 0 {
		return append(slices.Clone(rules.UIDs), uid)
	}
	return rules.UIDs
}

// bypass returns the uids of the init containers that run before the proxy does, each shown to be
// nobody else's.
func (s *Spec) bypass(r *reader, proxy []uint32) IDs {
	var ids IDs
	early, others := s.beforeProxy()
	for _, c := range early {
		uid, ok := s.user(c)
		switch {
		case !ok:
			r.mistake(c.Name, "an init container with runAsUser, so that its uid is known")
		case slices.Contains(proxy, uid):
			r.mistake(c.Name, fmt.Sprintf(
				"an init container that does not run as the proxy's uid %d", uid))
		default:
			s.refuseSharing(r, c.Name, uid, others)
			ids = append(ids, IDRange{uid, uid})
		}
	}
	return mergeIDs(ids)
}

// beforeProxy tells the init containers that have no proxy yet from the containers that have one.
func (s *Spec) beforeProxy() (early, others []Container) {
	running := false
	for _, c := range s.Containers {
		switch {
		case c.Name == proxyContainer:
			running = c.Init // a native sidecar
		case c.Init && c.Name == validationContainer: // the mesh's own
		case c.Init && !c.Stays && !running:
			early = append(early, c)
		default:
			others = append(others, c)
		}
	}
	return early, others
}

// refuseSharing names the containers that would leave the mesh together with an init container of
// that uid.
func (s *Spec) refuseSharing(r *reader, name string, uid uint32, others []Container) {
	for _, c := range others {
		switch other, ok := s.user(c); {
		case !ok:
			r.mistake(name, fmt.Sprintf("runAsUser on container %q too, so that its uid is known "+
				"to differ from %d", c.Name, uid))
		case other == uid:
			r.mistake(name, fmt.Sprintf("a uid of its own: container %q runs as %d too and would "+
				"leave the mesh", c.Name, uid))
		}
	}
}

// noteSharedGIDs notes containers whose group is the proxy's: by that, too, traffic counts as
// the proxy's.
func (s *Spec) noteSharedGIDs(d *Decision) {
	for _, c := range s.Containers {
		gid, ok := s.group(c)
		if c.Name == proxyContainer || c.Init && !c.Stays || !ok ||
			!slices.Contains(d.Policy.Proxy.GIDs, gid) {
			continue
		}
		d.notice(fmt.Sprintf(
			"container %q runs under the proxy's gid %d: its outbound traffic counts as the "+
				"proxy's and is not redirected",
			c.Name, gid))
	}
}

// maxNotices bounds what is reported about one pod: a pod may have any number of containers.
const maxNotices = 8

func (d *Decision) notice(text string) {
	if len(d.Notices) < maxNotices {
		d.Notices = append(d.Notices, text)
	}
}

// sharedUID looks for containers whose traffic counts as the proxy's, since they run under a uid of
// its own. Where the uid is the pod's and not the proxy's, that is what the pod asks for and cannot
// mean: nothing would be captured.
func (s *Spec) sharedUID(d *Decision) Mistakes {
	proxy, _ := s.proxy()
	own, set := s.user(proxy)
	r := reader{key: "securityContext.runAsUser"}
	for _, c := range s.Containers {
		uid, ok := s.user(c)
		if c.Name == proxyContainer || c.Init && !c.Stays || !ok ||
			!slices.Contains(d.Policy.Proxy.UIDs, uid) {
			continue
		}
		if set && own == uid && proxy.RunAsUser == nil {
			r.mistake(strconv.FormatUint(uint64(uid), 10), fmt.Sprintf(
				"a runAsUser of its own on container %s, other than that of %q: under one uid "+
					"all traffic counts as the proxy's",
				proxyContainer, c.Name))
			continue
		}
		d.notice(fmt.Sprintf(
			"container %q runs under the proxy's uid %d: its outbound traffic counts as the "+
				"proxy's and is not redirected",
			c.Name, uid))
	}
	return r.mistakes
}

// BeforeProxy names the init containers of a pod that run before its proxy does, so that what they
// send is redirected to nobody. The whole pod has to be known.
func BeforeProxy(pod Pod) []string {
	if pod.Spec == nil {
		return nil
	}
	var all []string
	early, _ := pod.Spec.beforeProxy()
	for _, c := range early {
		all = append(all, c.Name)
	}
	return all
}
