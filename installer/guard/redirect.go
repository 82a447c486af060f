package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/program"
)

// redirect does what ADD would have done, under the sandbox's own id, so that DEL finds it.
func (g *Guard) redirect(ctx context.Context, n *podns.Namespace, one sandbox, pod ours) verdict {
	configured := g.deps.Backend()
	if configured == "" {
		return refusedFor(errors.New("nothing on the node can program rules: the agent's "+
			"/readyz says why"), kernelRefused)
	}
	name := backend.For(configured, n)
	w, err := program.Prepare(g.cfg.Records, record.Record{
		Attachment: record.Attachment{Container: one.id, Interface: record.MainInterface},
		Netns:      record.Netns{Path: one.netns, Device: n.ID.Device, Inode: n.ID.Inode},
		Pod:        record.Pod{Namespace: one.pod.Namespace, Name: one.pod.Name, UID: pod.uid},
		Backend:    name,
		Policy:     pod.policy,
	})
	if err != nil {
		return refusedBy(err)
	}
	weight := weigh(w.Rules)
	if err := g.room.Acquire(ctx, weight); err != nil {
		w.Discard()
		return refusedFor(fmt.Errorf("other pods' rules are being written: %w", err), tooSlow)
	}
	defer g.room.Release(weight)
	thread := podns.Apart
	if g.cfg.InRoot != nil && backend.RunsPrograms(name) {
		thread = g.cfg.InRoot
	}
	v := verdict{outcome: redirected, warnings: pod.warnings, notices: pod.notices}
	err = n.DoOn(thread, func() error {
		warnings, err := w.Write(ctx)
		v.warnings = append(v.warnings, warnings...)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		w.Discard()
		return refusedFor(err, tooSlow)
	case err != nil:
		w.Discard()
		return refusedBy(err)
	}
	// Package repair may have been here before, and knows no sandbox's id.
	if _, err := g.cfg.Records.Delete(record.StandIn(pod.uid)); err != nil {
		v.warnings = append(v.warnings, err.Error())
	}
	return v
}

// weigh returns what a pod's rules take of the room that all have together which are written at the
// same time.
func weigh(rules redirect.Ruleset) int64 {
	const least = redirect.MaxRules / parallel
	return int64(min(max(rules.Size(), least), redirect.MaxRules))
}

// The file of a sandbox that says which nameservers its containers have, and how much is read of
// it: resolvers take three, and libc 1 KB.
const (
	resolvConf    = "etc/resolv.conf"
	maxResolvConf = 64 << 10
)

// nameservers are those that the kubelet chose by the pod's dnsPolicy and dnsConfig. It passes them
// to the runtime, which passes them to plugins and writes them into the resolv.conf of the sandbox;
// through NRI it does not tell. Where plugins are not told either, as with CRI-O, there are none,
// so that the rules are ADD's.
func (g *Guard) nameservers(one sandbox) []netip.Addr {
	if !one.resolves || one.pid == 0 || g.cfg.HostProc == "" {
		return nil
	}
	process := filepath.Join(g.cfg.HostProc, strconv.FormatUint(uint64(one.pid), 10))
	theirs, err := podns.Identify(filepath.Join(process, "ns/net"))
	if err != nil {
		return nil
	}
	if its, err := podns.Identify(one.netns); err != nil || its != theirs {
		return nil // the number is another process' by now
	}
	file, err := openIn(filepath.Join(process, "root"), resolvConf)
	if err != nil {
		return nil
	}
	defer file.Close()
	return readNameservers(file)
}

// openIn opens a regular file below a root. Links in it lead nowhere else.
func openIn(root, name string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("%s is no file", name)
	}
	return file, nil
}

// readNameservers reads the lines of resolv.conf(5) that name one.
func readNameservers(file io.Reader) []netip.Addr {
	var servers []netip.Addr
	lines := bufio.NewScanner(io.LimitReader(file, maxResolvConf))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if server, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, server)
		}
	}
	return servers
}
