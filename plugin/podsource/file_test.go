package podsource

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/podfiles"
)

// A place is a run directory in which a pod has a fresh file, for somebody to spoil.
type place struct {
	t     *testing.T
	run   string
	files *podfiles.Files
	ref   Ref
}

func newPlace(t *testing.T) *place {
	t.Helper()
	netns.RequireRoot(t) // whose the files are
	run := filepath.Join(t.TempDir(), "run")
	p := &place{t: t, run: run, files: podfiles.New(t, run), ref: web}
	p.files.Put(meshed("5d1c"), "")
	p.files.Refresh(0)
	return p
}

func (p *place) read() file { return Sources{PodFiles: p.run}.readFile(p.ref) }

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// behindLink moves something away and puts a link to it there.
func (p *place) behindLink(path string) {
	p.must(os.Rename(path, path+"-elsewhere"))
	p.must(os.Symlink(path+"-elsewhere", path))
}

func (p *place) fifo(path string) {
	p.must(os.Remove(path))
	p.must(unix.Mkfifo(path, 0o600))
}

// sparse makes a file large that takes no room.
func (p *place) sparse(path string) { p.must(os.Truncate(path, 1<<30)) }

func (p *place) others(path string) { p.must(os.Chown(path, 1000, 0)) }

func (p *place) groups(path string) { p.must(os.Chmod(path, 0o720)) }

func (p *place) everybodys(path string) { p.must(os.Chmod(path, 0o702)) }

func (p *place) directory(path string) {
	p.must(os.Remove(path))
	p.must(os.Mkdir(path, 0o700))
}

// write writes the file of a pod that is changed first.
func (p *place) write(change func(*corev1.Pod)) {
	pod := meshed("5d1c")
	change(pod)
	body, err := json.Marshal(pod)
	p.must(err)
	p.files.Write("5d1c", string(body))
}

// raw writes a file of the pod as it is.
func (p *place) raw(change func(file string) string) {
	before, err := os.ReadFile(p.files.Path("5d1c"))
	p.must(err)
	p.must(os.WriteFile(p.files.Path("5d1c"), []byte(change(string(before))), 0o600))
}

// hostile are the ways in which a file is not to be believed, and a word of the reason; "" is
// none, as if there was no file.
var hostile = map[string]struct {
	spoil func(*place)
	why   string
}{
	"no file": {func(p *place) { p.must(os.Remove(p.files.Path("5d1c"))) }, ""},
	"no directory": {func(p *place) {
		p.must(os.Rename(p.files.Path(""), p.run+"/elsewhere"))
	}, ""},
	"no run directory": {func(p *place) { p.run += "/none" }, ""},

	"a link": {func(p *place) { p.behindLink(p.files.Path("5d1c")) }, "symbolic links"},
	"a link to nothing": {func(p *place) {
		p.behindLink(p.files.Path("5d1c"))
		p.must(os.Remove(p.files.Path("5d1c-elsewhere")))
	}, "symbolic links"},
	"a FIFO":              {func(p *place) { p.fifo(p.files.Path("5d1c")) }, "no file"},
	"a directory":         {func(p *place) { p.directory(p.files.Path("5d1c")) }, "no file"},
	"1 GB":                {func(p *place) { p.sparse(p.files.Path("5d1c")) }, "larger than 65536"},
	"another's file":      {func(p *place) { p.others(p.files.Path("5d1c")) }, "others than root"},
	"a group's file":      {func(p *place) { p.groups(p.files.Path("5d1c")) }, "others than root"},
	"everybody's file":    {func(p *place) { p.everybodys(p.files.Path("5d1c")) }, "others than root"},
	"a directory's link":  {func(p *place) { p.behindLink(p.files.Path("")) }, "not a directory"},
	"another's directory": {func(p *place) { p.others(p.files.Path("")) }, "others than root"},
	"a group's directory": {func(p *place) { p.groups(p.files.Path("")) }, "others than root"},
	"everybody's directory": {func(p *place) { p.everybodys(p.files.Path("")) },
		"others than root"},
	"a file for a directory": {func(p *place) {
		p.must(os.RemoveAll(p.files.Path("")))
		p.must(os.WriteFile(p.files.Path(""), nil, 0o600))
	}, "not a directory"},
	"a run directory's link":    {func(p *place) { p.behindLink(p.run) }, "not a directory"},
	"another's run directory":   {func(p *place) { p.others(p.run) }, "others than root"},
	"a group's run directory":   {func(p *place) { p.groups(p.run) }, "others than root"},
	"everybody's run directory": {func(p *place) { p.everybodys(p.run) }, "others than root"},

	"another uid": {func(p *place) {
		p.write(func(pod *corev1.Pod) { pod.UID = "a1da" })
	}, `uid "a1da"`},
	"no uid":       {func(p *place) { p.write(func(pod *corev1.Pod) { pod.UID = "" }) }, "not the pod"},
	"another name": {func(p *place) { p.write(func(pod *corev1.Pod) { pod.Name = "b" }) }, "not the pod"},
	"another namespace": {func(p *place) { p.write(func(pod *corev1.Pod) { pod.Namespace = "b" }) },
		"not the pod"},
	"no containers": {func(p *place) {
		p.write(func(pod *corev1.Pod) { pod.Spec.Containers = nil })
	}, "not the pod"},
	"a mirror pod of another uid": {func(p *place) {
		p.write(func(pod *corev1.Pod) {
			pod.UID = "a1da"
			pod.Annotations[corev1.MirrorPodAnnotationKey] = "5d1c"
		})
	}, `uid "a1da"`},

	"half a file": {func(p *place) {
		p.raw(func(file string) string { return file[:len(file)/2] })
	}, "it begins with"},
	"a byte too few": {func(p *place) {
		p.raw(func(file string) string { return file[:len(file)-1] })
	}, "it begins with"},
	"a byte too many": {func(p *place) {
		p.raw(func(file string) string { return file + "\n" })
	}, "it begins with"},
	"another form": {func(p *place) {
		p.raw(func(file string) string { return strings.Replace(file, " 1 ", " 2 ", 1) })
	}, "it begins with"},
	"an empty file": {func(p *place) { p.raw(func(string) string { return "" }) }, "it begins with"},
	"no JSON":       {func(p *place) { p.files.Write("5d1c", "<html>") }, "invalid character"},
	"a list":        {func(p *place) { p.files.Write("5d1c", "[]") }, "cannot unmarshal"},

	"a uid of ..":         {func(p *place) { p.ref.UID = ".." }, ""},
	"a uid of .fresh":     {func(p *place) { p.ref.UID = podfile.FreshFile }, ""},
	"a uid with a way in": {func(p *place) { p.ref.UID = "../pods/5d1c" }, ""},
	"no uid asked for":    {func(p *place) { p.ref.UID = "" }, ""},
}

// Whatever is there, it costs no time, and the pod is found as it was before there were files.
func TestFilesThatArePassedOver(t *testing.T) {
	t.Parallel()
	for name, row := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if f := p.read(); f.pod == nil || !f.fresh || f.why != nil {
				t.Fatalf("%+v, want a fresh file before it is spoilt", f)
			}
			row.spoil(p)
			f := p.read()
			if f.pod != nil || f.fresh || (f.why == nil) != (row.why == "") {
				t.Fatalf("%+v, want no file", f)
			}
			if row.why != "" {
				checkWords(t, f.why, p.run, row.why)
			}
			node := agent.Start(t)
			node.Put(meshed(types.UID(cmp.Or(p.ref.UID, "5d1c"))))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			found, err := Sources{AgentSocket: node.Socket(), PodFiles: p.run}.Find(ctx, p.ref)
			checkFound(t, found, err, FromAgent)
			if (found.PassedOver == nil) != (f.why == nil) {
				t.Errorf("passed over: %v, want %v", found.PassedOver, f.why)
			}
		})
	}
}

// What is wrong with the word that the files are fresh makes them stale, and no less readable.
func TestWhatIsFresh(t *testing.T) {
	t.Parallel()
	fresh := podfile.FreshFile
	for name, row := range map[string]struct {
		spoil func(*place)
		want  bool
	}{
		"just said":            {func(*place) {}, true},
		"said 29 s ago":        {func(p *place) { p.files.Refresh(29 * time.Second) }, true},
		"said 30 s ago":        {func(p *place) { p.files.Refresh(30 * time.Second) }, false},
		"said in time to come": {func(p *place) { p.files.Refresh(-time.Minute) }, false},
		"nobody holds it":      {func(p *place) { p.files.Abandon() }, false},
		"nobody held it, then somebody does": {func(p *place) {
			p.files.Abandon()
			p.files.Refresh(0)
		}, true},
		"another holds its shared lock only": {func(p *place) {
			p.files.Abandon()
			f, err := os.Open(p.files.Path(fresh))
			p.must(err)
			p.t.Cleanup(func() { f.Close() })
			p.must(unix.Flock(int(f.Fd()), unix.LOCK_SH))
		}, false},
		"gone":        {func(p *place) { p.must(os.Remove(p.files.Path(fresh))) }, false},
		"a link":      {func(p *place) { p.behindLink(p.files.Path(fresh)) }, false},
		"a FIFO":      {func(p *place) { p.fifo(p.files.Path(fresh)) }, false},
		"a directory": {func(p *place) { p.directory(p.files.Path(fresh)) }, false},
		"1 GB":        {func(p *place) { p.sparse(p.files.Path(fresh)) }, false},
		"torn":        {func(p *place) { p.must(os.Truncate(p.files.Path(fresh), 9)) }, false},
		"another's":   {func(p *place) { p.others(p.files.Path(fresh)) }, false},
		"a group's":   {func(p *place) { p.groups(p.files.Path(fresh)) }, false},
		"everybody's": {func(p *place) { p.everybodys(p.files.Path(fresh)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			row.spoil(p)
			if f := p.read(); f.pod == nil || f.fresh != row.want || f.why != nil {
				t.Errorf("%+v, want one that is fresh: %t", f, row.want)
			}
		})
	}
}

func TestStaleFiles(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	changed := meshed("5d1c")
	changed.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "22"
	silent := func(w *world) {
		files["stale"](w)
		w.agent.Break(agent.Hang)
		w.api.Break(apiserver.Hang)
	}
	inWorlds(t, map[string]func(*testing.T, *world){
		"a refusal ends it at once": func(t *testing.T, w *world) {
			files["stale"](w)
			w.away(agentAddress)
			apiBehaviours["403"].set(t, w)
			found, took, err := w.find(t, web)
			checkFound(t, found, err, FromStaleFile)
			if took != 0 || w.api.Requests() != 1 {
				t.Errorf("it took %v and %d requests, want one", took, w.api.Requests())
			}
		},
		"the API server's newer annotations count": func(t *testing.T, w *world) {
			files["stale"](w)
			w.away(agentAddress)
			w.api.Put(changed)
			found, took, err := w.find(t, web)
			checkFound(t, found, err, FromAPI)
			if diff := gocmp.Diff(facts(t, changed), found.Pod); diff != "" || took != 0 {
				t.Errorf("after %v, pod (-want +got):\n%s", took, diff)
			}
		},
		"an agent that takes over meanwhile is believed": func(t *testing.T, w *world) {
			silent(w)
			time.AfterFunc(time.Second, func() { w.files.Put(changed, ""); w.files.Refresh(0) })
			found, _, err := w.find(t, web)
			checkFound(t, found, err, FromFile)
			if diff := gocmp.Diff(facts(t, changed), found.Pod); diff != "" || found.Warning != "" {
				t.Errorf("warning %q, pod (-want +got):\n%s", found.Warning, diff)
			}
		},
		"a file that is removed meanwhile is not used": func(t *testing.T, w *world) {
			silent(w)
			time.AfterFunc(time.Second, func() { _ = os.Remove(w.files.Path("5d1c")) })
			_, took, err := w.find(t, web)
			checkClass(t, err, Unreachable)
			if took <= staleTimeout {
				t.Errorf("it gave up after %v, want as without a file", took)
			}
		},
		"somebody who said once that there is no such pod counts": func(t *testing.T, w *world) {
			files["stale"](w)
			w.api.Break(apiserver.Hang)
			time.AfterFunc(500*time.Millisecond, func() { w.away(agentAddress) })
			_, _, err := w.find(t, web)
			checkClass(t, err, Unreachable)
		},
		"a short deadline leaves two thirds of it": func(t *testing.T, w *world) {
			silent(w)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			started := time.Now()
			found, err := w.sources().Find(ctx, web)
			checkFound(t, found, err, FromStaleFile)
			if took := time.Since(started); took > 500*time.Millisecond {
				t.Errorf("it took %v, want at most 500ms", took)
			}
		},
	})
}

// A fresh file is read in a process that reaches nobody.
func TestAFreshFileIsAllThatItTakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	pod := meshed("5d1c")
	pod.Spec.RuntimeClassName = new("sandboxed")
	p.files.Put(pod, "kata")
	want := facts(t, pod)
	want.Spec.RuntimeHandler = "kata"
	dial := func(context.Context, string, string) (net.Conn, error) {
		t.Error("somebody was asked")
		return nil, net.ErrClosed
	}
	found, err := Sources{PodFiles: p.run, Dial: dial}.Find(t.Context(), p.ref)
	if diff := gocmp.Diff(Found{Pod: want, UID: "5d1c", From: FromFile},
		found); diff != "" || err != nil {
		t.Errorf("error %v, found (-want +got):\n%s", err, diff)
	}
}

// Whatever a file holds, it tells of the pod that was asked about, as a whole pod would, or is
// passed over.
func FuzzFile(f *testing.F) {
	right, err := json.Marshal(meshed("5d1c"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(podfile.Encode(right))
	f.Add(podfile.Encode(right)[:len(right)])
	f.Add(podfile.Encode([]byte(`{"metadata":{"namespace":"shop","name":"web-0","uid":"a1da",` +
		`"annotations":{"kubernetes.io/config.mirror":"5d1c"}},"spec":{"containers":[{}]}}`)))
	f.Add(right)
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, err := web.takeFile(data)
		if (pod == nil) == (err == nil) {
			t.Fatalf("pod %v, error %v; want one of both", pod, err)
		}
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		m := pod.Metadata
		if m.Namespace != web.Namespace || m.Name != web.Name || m.UID != web.UID ||
			len(pod.Spec.Containers) == 0 {
			t.Errorf("took %+v for the pod", pod)
		}
		_, body, _ := strings.Cut(string(data), "\n")
		whole, err := kubepod.Parse([]byte(body))
		if diff := gocmp.Diff(decide(whole.Facts()), decide(pod.Facts()),
			byValue); diff != "" || err != nil {
			t.Errorf("error %v, decision (-of the pod +of the file):\n%s", err, diff)
		}
	})
}

func decide(pod redirect.Pod) []any {
	d, err := redirect.Decide(pod, redirect.Defaults())
	return []any{d, fmt.Sprint(err)}
}

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
