package chain

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func conf(name, data string) File { return File{Name: name, Data: []byte(data), Mode: 0o644} }

const (
	flannel = `{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"}]}`
	single  = `{"name":"cbr0","cniVersion":"0.3.1","type":"flannel"}`
	multus  = `{"name":"m","cniVersion":"0.3.1","type":"multus-shim"}`
)

func refusal(err error) Reason {
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		return ""
	}
	return r.Reason
}

// Where nothing can be done nothing is: the reason is in the error, in the state, and names the
// file.
func TestRefusals(t *testing.T) {
	t.Parallel()
	old := spec(DropIn)
	old.LoadsDropIns = false
	rows := map[string]struct {
		dir  Dir
		spec Spec
		want Reason
		text string
	}{
		"no directory": {nil, spec(Auto), NoNetwork, "waiting"},
		"files that are no networks": {Dir{conf("README", ""),
			conf("10-x.conflist.bak", flannel)}, spec(Auto), NoNetwork, "waiting"},
		"a sub-directory called like one": {Dir{{Name: "10-x.conflist", Mode: fs.ModeDir | 0o755}},
			spec(Auto), NoNetwork, "waiting"},
		"unreadable": {Dir{{Name: "10-x.conf", Err: fs.ErrPermission}},
			spec(Auto), Unreadable, "10-x.conf: permission denied"},
		"half written": {Dir{conf("10-x.conflist", flannel[:20])}, spec(Auto),
			Broken, "load 10-x.conflist"},
		"empty file": {Dir{conf("10-x.conf", "")}, spec(Auto), Broken,
			"load 10-x.conf"},
		"a list called like a plugin": {Dir{conf("10-x.conf", flannel)}, spec(Auto), Broken,
			"missing 'type'"},
		"a plugin called like a list": {Dir{conf("10-x.conflist", single)}, spec(Inline), Empty,
			"10-x.conflist has no plugins"},
		"nothing to find a way into": {Dir{conf("10-x.conflist", single)}, spec(Auto), Empty,
			"no plugins"},
		"a list of nothing": {Dir{conf("10-x.conflist", `{"name":"x","plugins":[]}`)},
			spec(Auto), Broken, "no plugins in list"},
		"with a mark of byte order": {Dir{conf("10-x.conflist", "\ufeff"+flannel)},
			spec(Auto), Broken, "load 10-x.conflist"},
		"no name": {
			Dir{conf("10-x.conf", `{"type":"x","cniVersion":"0.3.1"}`)}, spec(Auto), Broken,
			"network name"},
		"a name that leads elsewhere": {
			Dir{conf("10-x.conflist", strings.Replace(flannel, "cbr0", "../x", 1))}, spec(DropIn),
			Broken, `"../x"`},
		"a broken drop-in": {Dir{conf("10-x.conflist", flannel),
			conf("cbr0/10-y.conf", "{")}, spec(Auto), Broken, "load cbr0/10-y.conf"},
		"an unreadable drop-in": {Dir{conf("10-x.conflist", flannel),
			{Name: "cbr0/10-y.conf", Err: fs.ErrPermission}}, spec(Auto), Unreadable,
			"cbr0/10-y.conf"},
		"no version": {Dir{conf("10-x.conf", `{"name":"x","type":"x"}`)},
			spec(Auto), Version, `cniVersion ""`},
		"version before chains": {
			Dir{conf("10-x.conflist", strings.Replace(flannel, "0.3.1", "0.2.0", 1))}, spec(DropIn),
			Version, `"0.2.0"`},
		"version after ours": {
			Dir{conf("10-x.conflist", strings.Replace(flannel, "0.3.1", "1.2.0", 1))}, spec(Owned),
			Version, `"1.2.0"`},
		"nobody but us": {
			Dir{conf("10-x.conflist",
				`{"name":"x","cniVersion":"1.0.0","plugins":[`+ourEntry+`]}`)}, spec(Inline), Empty,
			"no plugin but ours"},
		"nothing but drop-ins": {
			Dir{conf("10-x.conflist", `{"name":"x","cniVersion":"1.0.0"}`),
				conf("x/1.conf", `{"type":"y"}`)}, spec(Inline), Empty, "dropin way"},
		"a mesh in the list": {
			Dir{conf("10-x.conflist", strings.Replace(flannel, "]", `,{"type":"istio-cni"}]`, 1))},
			spec(Auto), OtherMesh, "10-x.conflist runs istio-cni"},
		"a mesh in a drop-in": {Dir{conf("10-x.conflist", flannel),
			conf("cbr0/linkerd.conf", `{"type":"linkerd-cni"}`)}, spec(Auto), OtherMesh,
			"cbr0/linkerd.conf runs linkerd-cni"},
		"a runtime without drop-ins": {Dir{conf("10-x.conflist", flannel)}, old, NoDropIns,
			"runtime"},
		"a list that wants no drop-ins": {
			Dir{conf("10-x.conflist",
				strings.Replace(flannel, "{", `{"loadOnlyInlinedPlugins":true,`, 1))}, spec(DropIn),
			NoDropIns, "loadOnlyInlinedPlugins"},
		"a plugin that takes no drop-ins": {Dir{conf("10-x.conf", single)}, spec(DropIn), NoDropIns,
			"10-x.conf"},
		"a file where drop-ins would go": {Dir{conf("10-x.conflist", flannel), conf("cbr0", "")},
			spec(DropIn), Taken, "cbr0 is a file"},
		"an entry of ours by hand": {Dir{conf("10-x.conflist", flannel),
			conf("cbr0/by-hand.conf", `{"type":"sidecar-cni"}`)}, spec(Auto), Taken,
			"cbr0/by-hand.conf"},
		"a list beside the plugin": {Dir{conf("10-x.conf", single),
			conf("10-x.conflist", flannel)}, spec(Inline), Taken,
			"10-x.conflist is there beside 10-x.conf"},
		"a file between plugin and list": {Dir{conf("10-x.conf", single),
			conf("10-x.conf.json", single)}, spec(Inline), Shadowed, "10-x.conf.json"},
		"a primary before our own": {Dir{conf("00-a.conflist", flannel)}, spec(Owned), Shadowed,
			"00-a.conflist sorts before"},
		"a copy of Multus": {Dir{conf("00-multus.conf", multus)}, spec(Owned), Multus,
			"delegate to a copy of itself"},
		"a copy beside the original": {
			Dir{conf("10-x.conflist", flannel)},
			Spec{Way: Owned, ManyNetworks: true, Entry: []byte(ourEntry)}, ManyNetworks,
			"max_conf_num 1",
		},
		"standalone without Multus": {Dir{conf("10-x.conflist", flannel)}, spec(Standalone),
			NoMultus, "used by nobody"},
		"an unknown way": {Dir{conf("10-x.conflist", flannel)}, spec("sideways"),
			BadEntry, "sideways"},
		"an entry that is none": {Dir{conf("10-x.conflist", flannel)},
			Spec{Entry: []byte(`{}`)}, BadEntry, "our entry"},
		"an entry of another plugin": {Dir{conf("10-x.conflist", flannel)},
			Spec{Entry: []byte(`{"type":"portmap"}`)}, BadEntry, `"portmap"`},
		"an entry with a name of a network": {Dir{conf("10-x.conflist", flannel)},
			Spec{Entry: []byte(`{"type":"sidecar-cni","name":"x"}`)}, BadEntry, "no others"},
	}
	seen := map[Reason]bool{}
	for name, row := range rows {
		seen[row.want] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := Install(row.dir, row.spec)
			if refusal(err) != row.want || len(plan.Steps) != 0 {
				t.Fatalf("%v, %s", err, told(plan, nil))
			}
			if !strings.Contains(err.Error(), row.text) {
				t.Errorf("%q: want %q in it", err, row.text)
			}
			s := Evaluate(row.dir, row.spec)
			if s.Effective || s.Reason != row.want || s.Text != err.Error() {
				t.Errorf("%+v", s)
			}
		})
	}
	for _, reason := range Reasons {
		if !seen[reason] && !slices.Contains([]Reason{Effective, Absent, Outdated, Misplaced,
			Repeated, Stale}, reason) {
			t.Errorf("%s is the outcome of no row", reason)
		}
	}
}

// TestARuntimeThatPassesOver takes the first file that can be loaded, as CRI-O does; containerd has
// no network then.
func TestARuntimeThatPassesOver(t *testing.T) {
	t.Parallel()
	good := conf("20-x.conflist", flannel)
	for name, row := range map[string]struct {
		dir  Dir
		want string // the primary; empty where nothing can be loaded
	}{
		"half written": {Dir{conf("10-x.conflist", flannel[:20]), good}, "20-x.conflist"},
		"unreadable": {Dir{{Name: "10-x.conf", Err: fs.ErrPermission}, good},
			"20-x.conflist"},
		"without plugins": {Dir{conf("10-x.conflist", `{"name":"a","cniVersion":"1.0.0"}`),
			good}, "20-x.conflist"},
		"without a type": {Dir{conf("10-x.conf", flannel), good}, "20-x.conflist"},
		"a broken drop-in": {Dir{conf("10-x.conflist", strings.Replace(flannel, "cbr0", "a", 1)),
			conf("a/1.conf", "{"), good}, "20-x.conflist"},
		"nothing is amiss":   {Dir{conf("10-x.conflist", flannel), good}, "10-x.conflist"},
		"nothing can be had": {Dir{conf("10-x.conflist", "{"), conf("20-x.conf", "{")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []Way{Inline, DropIn, Owned} {
				w := spec(way)
				if _, err := Install(row.dir, w); name != "nothing is amiss" && err == nil {
					t.Error("containerd would have a network")
				}
				w.SkipsBroken = true
				p, err := Install(row.dir, w)
				if row.want == "" {
					if refusal(err) != Broken || !strings.Contains(err.Error(), "10-x.conflist") {
						t.Errorf("%s: %v", way, err)
					}
					continue
				}
				s := Evaluate(row.dir.After(p.Steps...), w)
				if err != nil || p.Primary != row.want || !s.Effective {
					t.Errorf("%s: primary %q, %v, then %+v", way, p.Primary, err, s)
				}
			}
		})
	}
}

// The other mesh came later: what is there of ours stays, and the state says so.
func TestAnotherMeshComesAfterUs(t *testing.T) {
	t.Parallel()
	withMesh := strings.Replace(flannel, "]", `,{"type":"kuma-cni"}]`, 1)
	for _, way := range []Way{Inline, DropIn, Owned} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			d := Dir{conf("10-x.conflist", flannel)}
			plan, err := Install(d, spec(way))
			if err != nil {
				t.Fatal(err)
			}
			d = d.After(plan.Steps...).
				After(Step{Op: Write, Name: "10-x.conflist", Data: []byte(withMesh)})
			plan, err = Install(d, spec(way))
			if refusal(err) != OtherMesh || len(plan.Steps) != 0 {
				t.Errorf("%v, %s", err, told(plan, nil))
			}
			if s := Evaluate(d, spec(way)); s.Reason != OtherMesh || s.Effective ||
				!strings.Contains(s.Text, "kuma-cni") {
				t.Errorf("%+v", s)
			}
			out, err := Uninstall(d, Spec{})
			if diff := cmp.Diff([]string{withMesh}, contents(d.After(out.Steps...))); diff != "" ||
				err != nil {
				t.Errorf("uninstall: %v\n%s", err, diff)
			}
		})
	}
}

func contents(d Dir) []string {
	var all []string
	for _, f := range d {
		if !f.Mode.IsDir() {
			all = append(all, string(f.Data))
		}
	}
	return all
}

func TestTheFirstByNameIsPrimary(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		names []string
		want  string
	}{
		"order of the alphabet":    {[]string{"20-a.conflist", "10-b.conflist"}, "10-b.conflist"},
		"a plugin before its list": {[]string{"10-a.conflist", "10-a.conf"}, "10-a.conf"},
		"json after a list":        {[]string{"10-a.json", "10-a.conflist"}, "10-a.conflist"},
		"hidden files count":       {[]string{"10-a.conf", ".conf"}, ".conf"},
		"others do not": {[]string{"10-a.conf", "00-b.yaml", "00-c", "00-d.conf.bak",
			"00/e.conf"}, "10-a.conf"},
		"ours, once it is there": {[]string{"10-a.conf", ownedName}, ownedName},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d Dir
			for _, name := range row.names {
				d = append(d, conf(name, "{"))
			}
			if f, err := d.tree().primary(); err != nil || f.Name != row.want {
				t.Errorf("%s, %v", f.Name, err)
			}
		})
	}
}
