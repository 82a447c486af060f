package reconcile

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// situation is what Decide gets: settings and what was seen.
type situation struct {
	cfg Settings
	o   Observation
}

// usual is a node on which nothing of ours is yet, and on which nothing is wrong.
func usual() *situation {
	cfg := Settings{
		Dirs:  Directories{Platform: "kubeadm", Run: "/run/sidecar-cni"},
		Chain: ChainSettings{Way: "auto", Attachment: "istio-cni"},
		Plugin: PluginSettings{Binary: "/sidecar-cni", Conf: "{}",
			APIServer: "https://10.96.0.1"},
		Namespace: "kube-system",
	}
	s := &situation{cfg: cfg, o: Observation{
		Goal: In, ID: "one", Token: []byte("token"), CA: []byte("ca"),
		Known: Findings{
			Where: locate(cfg, nil), Runtime: cri.Runtime{Name: "containerd", Version: "1.7.0"},
			Probed: Backends{Backend: "nftables"},
		},
	}}
	return s.has("10-bridge.conflist", network(`{"type":"bridge"}`))
}

func network(plugins string) string {
	return `{"cniVersion":"1.0.0","name":"pods","plugins":[` + plugins + `]}`
}

const multusFile = `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus"}`

// has replaces the files of the conf directory by one.
func (s *situation) has(name, data string) *situation {
	s.o.Conf.Files = nil
	return s.and(name, data)
}

func (s *situation) and(name, data string) *situation {
	s.o.Conf.Files = append(s.o.Conf.Files, chain.File{Name: name, Data: []byte(data), Mode: 0o644})
	return s
}

// installed does what Decide says, in memory.
func (s *situation) installed(t *testing.T) *situation {
	t.Helper()
	todo, now := Decide(s.cfg, s.o)
	if todo.Enter == nil {
		t.Fatalf("nothing to install: %+v", now)
	}
	for _, step := range todo.Enter.Plan.Steps {
		s.o.Conf.Files = s.o.Conf.Files.After(step)
	}
	if plan := todo.Enter.Multus; plan != nil {
		for _, step := range plan.Steps {
			s.o.Multus.Files = s.o.Multus.Files.After(step)
		}
	}
	return s
}

// edit changes a file as another writer does.
func (s *situation) edit(from, to string) *situation {
	for i, f := range s.o.Conf.Files {
		s.o.Conf.Files[i].Data = []byte(strings.Replace(string(f.Data), from, to, 1))
	}
	return s
}

// words are what there is to do, in the order in which it is done.
func (t Todo) words() string {
	var words []string
	for _, one := range []struct {
		word string
		is   bool
	}{
		{"resume", t.Resume != nil}, {"plugin", t.Plugin != nil},
		{"credentials", t.Credentials != nil},
		{"enter", t.Enter != nil}, {"leave", t.Leave != nil},
	} {
		if one.is {
			words = append(words, one.word)
		}
	}
	return strings.Join(words, " ")
}

// TestEveryReason has a node for each reason of docs/installer.md, without a node.
func TestEveryReason(t *testing.T) {
	t.Parallel()
	const all, noEntry = "plugin credentials enter", "plugin credentials"
	of := func(r chain.Reason) Reason { return Reason(r) }
	rows := map[Reason]struct {
		todo string
		node func(s *situation)
	}{
		Effective:  {all, func(s *situation) { s.installed(t) }},
		Superseded: {"", func(s *situation) { s.installed(t).o.Newer = true }},
		Starting:   {"", func(s *situation) { s.o = Observation{} }},
		Uninstalled: {"", func(s *situation) {
			s.installed(t).o.Marked = true
		}},
		NoNode: {"", func(s *situation) {
			s.cfg.Dirs.Platform = autoPlatform
			s.o.Known.Where, s.o.Known.Runtime = locate(s.cfg, nil), cri.Runtime{}
		}},
		NoBackend:   {"", func(s *situation) { s.o.Known.ProbeErr = errors.New("none works") }},
		BadSettings: {"", func(s *situation) { s.cfg.Plugin.Conf = `{"dedline":"3s"}` }},
		BadBinary: {all, func(s *situation) {
			s.installed(t).o.Failed = &Failure{BadBinary,
				fs.ErrNotExist}
		}},
		BadDisk:  {"", func(s *situation) { s.o.Conf = Listing{Err: fs.ErrPermission} }},
		BadMount: {"", func(s *situation) { s.o.Conf = Listing{Err: node.ErrDeleted} }},
		BadPlace: {"", func(s *situation) {
			s.installed(t).
				o.Refused = errors.New("it reads another")
		}},
		NotLoaded: {all, func(s *situation) {
			s.installed(t).o.Known.Runtime.Chain = []byte(
				`{"PluginConfDir":"/etc/cni/net.d","Networks":[]}`)
		}},
		OtherRuntime: {all, func(s *situation) {
			s.installed(t).
				o.RuntimeErr = &notOurs{socket: "/run/other.sock"}
		}},
		StillLoaded: {"", func(s *situation) {
			s.o.Goal, s.o.Failed = Out, &Failure{StillLoaded, errors.New("containerd still has it")}
		}},
		NoAccess: {"plugin enter",
			func(s *situation) { s.installed(t).o.AccessErr = fs.ErrNotExist }},

		of(chain.Absent): {all, func(*situation) {}},
		of(chain.Outdated): {all,
			func(s *situation) { s.installed(t).cfg.Plugin.Conf = `{"deadline":"3s"}` }},
		of(chain.Misplaced): {all, func(s *situation) {
			entry, err := s.cfg.entry(s.o.Known.Where, "nftables")
			if err != nil {
				t.Fatal(err)
			}
			s.has("10-bridge.conflist",
				network(`{"type":"bridge"},`+string(entry)+`,{"type":"portmap"}`))
		}},
		of(chain.Repeated): {all, func(s *situation) {
			s.has("10-bridge.conflist",
				network(`{"type":"bridge"},{"type":"sidecar-cni"},{"type":"sidecar-cni"}`))
		}},
		of(chain.Stale): {all, func(s *situation) {
			s.cfg.Chain.Way = "owned"
			s.installed(t)
			i := slices.IndexFunc(s.o.Conf.Files,
				func(f chain.File) bool { return f.Name == "10-bridge.conflist" })
			s.o.Conf.Files[i].Data = []byte(network(`{"type":"bridge","mtu":1400}`))
		}},
		of(chain.NoNetwork): {noEntry, func(s *situation) { s.o.Conf.Files = nil }},
		of(chain.Unreadable): {noEntry,
			func(s *situation) { s.o.Conf.Files[0].Err = fs.ErrPermission }},
		of(chain.Broken): {noEntry, func(s *situation) { s.has("10-bridge.conflist", "{") }},
		of(chain.Empty): {noEntry,
			func(s *situation) { s.has("10-bridge.conflist", network(`{"type":"sidecar-cni"}`)) }},
		of(chain.Version): {noEntry, func(s *situation) {
			s.edit("1.0.0", "0.2.0")
		}},
		of(chain.OtherMesh): {"", func(s *situation) {
			s.has("10-bridge.conflist", network(`{"type":"bridge"},{"type":"istio-cni"}`))
		}},
		of(chain.Taken): {noEntry, func(s *situation) {
			s.has("10-a.conf", `{"cniVersion":"1.0.0","name":"a","type":"bridge"}`).
				and("10-a.conflist", network(`{"type":"ptp"}`))
		}},
		of(chain.Shadowed): {noEntry, func(s *situation) {
			s.cfg.Chain.Way = "owned"
			s.has("00-a.conflist", network(`{"type":"bridge"}`))
		}},
		of(chain.NoDropIns): {noEntry, func(s *situation) { s.cfg.Chain.Way = "dropin" }},
		of(chain.Multus): {noEntry, func(s *situation) {
			s.cfg.Chain.Way = "owned"
			s.has("00-multus.conf", multusFile)
		}},
		of(chain.ManyNetworks): {noEntry, func(s *situation) {
			s.cfg.Chain.Way, s.o.Known.Runtime.ManyNetworks = "owned", true
		}},
		of(chain.NoMultus): {noEntry, func(s *situation) { s.cfg.Chain.Way = "standalone" }},
		of(chain.BadEntry): {noEntry, func(s *situation) {
			s.cfg.Chain.Attachment = "no name"
			s.has("00-multus.conf", multusFile)
		}},
	}
	for _, want := range Reasons() {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			row, ok := rows[want]
			if !ok {
				t.Fatal("there is no row for it")
			}
			s := usual()
			row.node(s)
			todo, now := Decide(s.cfg, s.o)
			if now.Why != want || now.Text == "" ||
				now.Ready() != (want == Effective || want == Superseded) {
				t.Errorf("%+v, ready: %v; want %s", now, now.Ready(), want)
			}
			if got := todo.words(); got != row.todo {
				t.Errorf("to do: %q, want %q", got, row.todo)
			}
			if again, same := Decide(s.cfg, s.o); !cmp.Equal(again, todo) || same != now {
				t.Errorf("decided otherwise the second time: %+v, %+v", again, same)
			}
		})
	}
}

// What goes first where two things are wrong, and what an uninstallation forbids to whom.
func TestWhatCountsMore(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows := map[string]struct {
		node func(s *situation)
		why  Reason
		todo string
	}{
		"no entry, and no token": {
			func(s *situation) { s.o.AccessErr = fs.ErrNotExist }, Reason(chain.Absent),
			"plugin enter",
		},
		"no network, and no token": {func(s *situation) {
			s.o.Conf.Files, s.o.AccessErr = nil, fs.ErrNotExist
		}, Reason(chain.NoNetwork), "plugin"},
		"another mesh, and a copy of ours from before": {func(s *situation) {
			s.cfg.Chain.Way = "owned"
			s.installed(t).edit(`{"type":"bridge"}`, `{"type":"bridge"},{"type":"linkerd-cni"}`)
		}, Reason(chain.OtherMesh), ""},
		"a silent runtime": {func(s *situation) {
			s.installed(t).o.RuntimeErr = errors.New("no answer")
			s.o.Known.Runtime.Chain = []byte(`{"PluginConfDir":"/etc/cni/net.d","Networks":[]}`)
		}, Effective, "plugin credentials enter"},
		"a runtime that is not known, and a drop-in": {func(s *situation) {
			s.o.Known.Runtime.Version = "2.1.0"
			s.installed(t).o.Known.Runtime = cri.Runtime{}
		}, Effective, "plugin credentials enter"},
		"Multus, and its directory": {func(s *situation) {
			s.has("00-multus.conf", multusFile).installed(t)
		}, Effective, "plugin credentials enter"},
		"Multus, whose directory is out of reach": {func(s *situation) {
			s.has("00-multus.conf", multusFile).o.Multus.Err = fs.ErrNotExist
		}, BadDisk, "plugin credentials"},
		"Multus, and a runtime that does not list what Multus runs": {func(s *situation) {
			s.has("00-multus.conf", multusFile).installed(t)
			s.o.Known.Runtime.Chain = []byte(`{"PluginConfDir":"/etc/cni/net.d","Networks":[]}`)
		}, Effective, "plugin credentials enter"},
		"no kind of node, and the runtime's own directory": {func(s *situation) {
			s.cfg.Dirs.Platform = autoPlatform
			s.o.Known.Where, s.o.Known.Runtime = locate(s.cfg, nil),
				cri.Runtime{ConfDir: "/etc/cni/net.d"}
		}, Reason(chain.Absent), "plugin credentials enter"},
		"no kind of node, and both directories by flags": {func(s *situation) {
			s.cfg.Dirs.Platform, s.cfg.Dirs.Conf, s.cfg.Dirs.Bin = autoPlatform, "/conf", "/bin"
			s.o.Known.Where, s.o.Known.Runtime = locate(s.cfg, nil), cri.Runtime{}
		}, Reason(chain.Absent), "plugin credentials enter"},
		"no kind of node, and one directory by a flag": {func(s *situation) {
			s.cfg.Dirs.Platform, s.cfg.Dirs.Conf = autoPlatform, "/conf"
			s.o.Known.Where, s.o.Known.Runtime = locate(s.cfg, nil), cri.Runtime{}
		}, NoNode, ""},
		"a newer agent, and a marker that could not be removed": {func(s *situation) {
			s.installed(t).o.Newer, s.o.Marked, s.o.Marker.ID = true, true, "other"
			s.o.Failed = diskFailure(fs.ErrPermission)
		}, BadDisk, "resume"},
		"a newer agent, and no entry": {func(s *situation) { s.o.Newer = true },
			Reason(chain.Absent), ""},
		"the marker cannot be read": {func(s *situation) { s.o.Err = fs.ErrPermission }, BadDisk,
			""},
		"the marker of another installation": {func(s *situation) {
			s.installed(t).o.Marked, s.o.Marker.ID = true, "other"
		}, Effective, "resume plugin credentials enter"},
		"a marker, and an older pod": {func(s *situation) {
			s.o.Marked, s.o.Marker, s.o.Created = true, node.Marker{ID: "one", Withdrawn: began},
				began
		}, Uninstalled, ""},
		"a marker, and a younger pod": {func(s *situation) {
			s.installed(t).o.Marked = true
			s.o.Marker, s.o.Created = node.Marker{ID: "one", Withdrawn: began},
				began.Add(time.Second)
		}, Effective, "resume plugin credentials enter"},
		"a marker by hand, and a younger pod": {func(s *situation) {
			s.o.Marked, s.o.Marker, s.o.Created = true, node.Marker{ID: "one"}, began
		}, Uninstalled, ""},
		"a preview where nothing tells the kind of node": {func(s *situation) {
			s.cfg.Dirs.Platform, s.o.Goal, s.o.Token = autoPlatform, Preview, nil
			s.o.Known.Where, s.o.Known.Runtime = locate(s.cfg, nil), cri.Runtime{}
		}, Reason(chain.Absent), "plugin enter"},
		"out": {func(s *situation) { s.o.Goal = Out }, Starting, "leave"},
		"out, and taken": {func(s *situation) { s.o.Goal, s.o.Resumed = Out, true }, Superseded,
			""},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := usual()
			row.node(s)
			todo, now := Decide(s.cfg, s.o)
			if now.Why != row.why || todo.words() != row.todo {
				t.Errorf("%s (%s), to do %q; want %s, %q", now.Why, now.Text, todo.words(), row.why,
					row.todo)
			}
		})
	}
}

// Of a runtime that is not known it is believed that it loads drop-ins only where one of ours is.
func TestADropInThatIsThere(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		file string
		want chain.Way
	}{
		"ours":                     {"pods/" + chain.DropInName, chain.DropIn},
		"somebody else's":          {"pods/10-other.conf", chain.Inline},
		"of our name, beside them": {chain.DropInName, chain.Inline},
	} {
		s := usual()
		s.o.Known.Runtime = cri.Runtime{}
		todo, now := Decide(s.cfg, s.and(row.file, `{"type":"sidecar-cni"}`).o)
		if todo.Enter == nil || todo.Enter.Plan.Way != row.want {
			t.Errorf("%s: %+v, want way %s", name, now, row.want)
		}
		s.o.Known.Runtime = cri.Runtime{Name: "containerd", Version: "1.7.0"}
		if todo, now := Decide(s.cfg, s.o); todo.Enter == nil ||
			todo.Enter.Plan.Way != chain.Inline {
			t.Errorf("%s, and a runtime without drop-ins: %+v", name, now)
		}
	}
}

// What another way has left for Multus goes, where there is a directory of Multus'.
func TestWhatIsLeftForMultus(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{true, false} {
		s := usual()
		s.o.HasMultus = has
		if todo, _ := Decide(s.cfg, s.o); todo.Enter.Clear != has {
			t.Errorf("inline, a directory: %t; cleared: %t", has, todo.Enter.Clear)
		}
		if todo, _ := Decide(s.cfg, s.has("00-multus.conf", multusFile).o); todo.Enter.Clear {
			t.Errorf("standalone, a directory: %t; cleared", has)
		}
	}
}

func TestWhatATakenOutNodeSays(t *testing.T) {
	t.Parallel()
	for want, left := range map[string][]string{
		"the node is out": nil, "the node is out; left: a; b": {"a", "b"},
	} {
		if s := TakenOut(left); s.Text != want || !s.Ready() {
			t.Errorf("%+v, want %q", s, want)
		}
	}
	if (Todo{Plugin: &Copy{}}).Nothing() || !(Todo{}).Nothing() {
		t.Error("nothing is something")
	}
}

// A marker that somebody left by hand is not written over by one that ends by itself.
func TestTheMarkerOfAnUninstallation(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows := map[string]struct {
		there  *node.Marker
		writes bool
	}{
		"none":                {nil, true},
		"by hand":             {&node.Marker{ID: "one"}, false},
		"by hand, for all":    {&node.Marker{}, false},
		"by hand, of another": {&node.Marker{ID: "other"}, true},
		"of an earlier uninstallation": {&node.Marker{ID: "one", Withdrawn: began.Add(-time.Hour)},
			true},
	}
	for name, row := range rows {
		s := usual()
		s.o.Goal, s.cfg.Withdrawn = Out, began
		if row.there != nil {
			s.o.Marked, s.o.Marker = true, *row.there
		}
		todo, _ := Decide(s.cfg, s.o)
		var want *node.Marker
		if row.writes {
			want = &node.Marker{ID: "one", Withdrawn: began}
		}
		if diff := cmp.Diff(want, todo.Leave.Marker); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Every reason has a meaning for the reference page.
func TestReasonsAreThoseOfTheChainAndOurs(t *testing.T) {
	t.Parallel()
	for _, r := range chain.Reasons {
		if !slices.Contains(Reasons(), Reason(r)) {
			t.Errorf("%s is missing", r)
		}
	}
}
