package chain

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// day is a directory to which things happen, one after the other.
type day struct {
	t *testing.T
	d Dir
}

func (y *day) install(w Spec) *day {
	y.t.Helper()
	plan, err := Install(y.d, w)
	if err != nil {
		y.t.Fatal(err)
	}
	y.d = y.d.After(plan.Steps...)
	return y
}

func (y *day) uninstall() *day {
	y.t.Helper()
	plan, err := Uninstall(y.d, Spec{})
	if err != nil {
		y.t.Fatal(err)
	}
	y.d = y.d.After(plan.Steps...)
	return y
}

func (y *day) write(name, data string) *day {
	y.d = y.d.After(Step{Op: Write, Name: name, Data: []byte(data), Mode: 0o644})
	return y
}

func (y *day) remove(name string) *day {
	y.d = y.d.After(Step{Op: Remove, Name: name})
	return y
}

func (y *day) state(w Spec, reason Reason) *day {
	y.t.Helper()
	if s := Evaluate(y.d, w); s.Reason != reason {
		y.t.Errorf("%+v: want %s", s, reason)
	}
	return y
}

func (y *day) has(names ...string) *day {
	y.t.Helper()
	if diff := cmp.Diff(names, y.d.tree().names()); diff != "" {
		y.t.Errorf("(-want +got)\n%s", diff)
	}
	return y
}

func (y *day) file(name, data string) *day {
	y.t.Helper()
	if diff := cmp.Diff(data, string(y.d.tree()[name].Data)); diff != "" {
		y.t.Errorf("%s (-want +got)\n%s", name, diff)
	}
	return y
}

// What a node goes through.
func TestDays(t *testing.T) {
	t.Parallel()
	newer := strings.Replace(flannel, "flannel", "flannel-2", 1)
	single2 := strings.Replace(single, "flannel", "flannel-2", 1)
	rows := map[string]func(*day){
		"an earlier primary appears": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Inline)).write("05-y.conflist", newer).
				state(spec(Inline), Absent)
			y.install(spec(Inline)).state(spec(Inline), Effective).file("10-x.conflist", flannel)
			y.uninstall().file("05-y.conflist", newer)
		},
		"an earlier network comes and goes": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(DropIn))
			y.write("05-y.conflist", strings.Replace(flannel, "cbr0", "cbr1", 1)).
				state(spec(DropIn), Absent).install(spec(DropIn))
			y.has("05-y.conflist", "10-x.conflist", "cbr0", "cbr0/"+DropInName, "cbr1",
				"cbr1/"+DropInName)
			// It is effective at once: nobody has to do anything.
			y.remove("05-y.conflist").state(spec(DropIn), Effective)
			y.install(spec(DropIn)).has("10-x.conflist", "cbr0", "cbr0/"+DropInName).uninstall().
				has("10-x.conflist")
		},
		"the network is renamed": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(DropIn)).has("10-x.conflist", "cbr0",
				"cbr0/"+DropInName)
			y.write("10-x.conflist", strings.Replace(flannel, "cbr0", "cbr1", 1)).
				state(spec(DropIn), Absent)
			y.install(spec(DropIn)).has("10-x.conflist", "cbr1", "cbr1/"+DropInName).uninstall().
				has("10-x.conflist")
		},
		"a copy follows the primary": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned)).write("10-x.conflist", newer).
				state(spec(Owned), Stale)
			y.install(spec(Owned)).state(spec(Owned), Effective)
			y.file(ownedName, strings.Replace(newer, "]", ","+ourEntry+"]", 1))
		},
		"a copy of nothing goes": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned)).remove("10-x.conflist").
				state(spec(Owned), Stale)
			y.install(spec(Owned)).has().state(spec(Owned), NoNetwork)
		},
		"a copy of nothing goes on uninstall": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned)).remove("10-x.conflist").
				uninstall().has()
		},
		"the primary is half written below a copy": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned)).write("10-x.conflist",
				flannel[:9]).state(spec(Owned), Effective)
			for _, try := range []func() (Plan, error){
				func() (Plan, error) { return Install(y.d, spec(Owned)) },
				func() (Plan, error) { return Uninstall(y.d, Spec{}) }} {
				if plan, err := try(); refusal(err) != Broken || len(plan.Steps) != 0 {
					y.t.Errorf("%v, %s", err, told(plan, nil))
				}
			}
		},
		"a drop-in is taken out though the primary is half written": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(DropIn)).write("10-x.conflist",
				flannel[:9]).state(spec(DropIn), Broken)
			y.uninstall().has("10-x.conflist")
		},
		"our copy is put aside": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned)).remove(ownedName).
				write(ownedName+".cilium_bak", "").state(spec(Owned), Absent)
			y.install(spec(Owned)).state(spec(Owned), Effective)
		},
		"a wrapped plugin reappears": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).write("10-x.conf", single2).
				state(spec(Inline), Absent)
			y.install(spec(Inline)).state(spec(Inline), Effective).
				file("10-x.conf.sidecar-cni-saved", single2)
			y.uninstall().has("10-x.conf").file("10-x.conf", single2)
		},
		"a wrapped plugin reappears that sorts after its list": func(y *day) {
			y.write("10-x.json", single).install(spec(Inline)).has("10-x.conflist",
				"10-x.json.sidecar-cni-saved")
			y.write("10-x.json", single2).state(spec(Inline), Stale).install(spec(Inline)).
				state(spec(Inline), Effective)
			y.uninstall().has("10-x.json").file("10-x.json", single2)
		},
		"a wrapped plugin reappears and we leave": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).write("10-x.conf", single2).
				uninstall().has("10-x.conf").file("10-x.conf", single2)
		},
		"a wrapped plugin becomes a list": func(y *day) {
			y.write("05-c.conf", single).install(spec(Inline)).write("05-c.conflist", newer).
				state(spec(Inline), Absent)
			y.install(spec(Inline)).has("05-c.conflist").state(spec(Inline), Effective)
			y.uninstall().has("05-c.conflist").file("05-c.conflist", newer)
		},
		"the wrapping list is removed with its network": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).remove("10-x.conflist").
				state(spec(Inline), NoNetwork)
			y.install(spec(Inline)).has()
		},
		"the saved file is lost": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).
				remove("10-x.conf.sidecar-cni-saved").state(spec(Inline), Effective)
			y.uninstall().has("10-x.conflist")
		},
		"another plugin joins the wrapping list": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline))
			list := string(y.d.tree()["10-x.conflist"].Data)
			y.write("10-x.conflist", strings.Replace(list, "]\n}", `,{"type":"bandwidth"}]}`, 1)).
				state(spec(Inline), Misplaced)
			y.install(spec(Inline)).state(spec(Inline), Effective)
			n, err := y.d.tree()["10-x.conflist"].parse()
			if err != nil || len(n.inline) != 3 || n.inline[1].kind != "bandwidth" {
				y.t.Errorf("%v, %+v", err, n)
			}
			y.uninstall().has("10-x.conf").file("10-x.conf", single)
		},
		// The file's writer came between our write and our rename.
		"what is saved is not what is wrapped": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).write("10-x.conf.sidecar-cni-saved",
				single2).state(spec(Inline), Stale)
			y.install(spec(Inline)).state(spec(Inline), Effective).uninstall().file("10-x.conf",
				single2)
		},
		"what may be our list cannot be read": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).write("05-y.conflist", flannel)
			for i, f := range y.d {
				if f.Name == "10-x.conflist" {
					y.d[i].Data, y.d[i].Err = nil, fs.ErrPermission
				}
			}
			y.install(spec(Inline)).state(spec(Inline), Effective).has("05-y.conflist",
				"10-x.conf.sidecar-cni-saved", "10-x.conflist")
		},
		"what may be our list cannot be read, and something else is saved": func(y *day) {
			y.write("10-x.conf", single).install(spec(Inline)).write("05-y.conflist", flannel)
			for i, f := range y.d {
				if f.Name == "10-x.conflist" {
					y.d[i].Data, y.d[i].Err = nil, fs.ErrPermission
				}
			}
			y.write("20-z.conf"+SavedSuffix, single).install(spec(Inline))
			y.has("05-y.conflist", "10-x.conf"+SavedSuffix, "10-x.conflist")
		},
		"a wrapped plugin reappears with another ending": func(y *day) {
			y.write("10-x.json", single).install(spec(Inline))
			y.write("10-x.conf", single).install(spec(Inline)).state(spec(Inline), Effective)
			y.has("10-x.conf"+SavedSuffix, "10-x.conflist", "10-x.json")
			y.uninstall().has("10-x.conf", "10-x.json")
		},
		"a wrapped plugin reappears beside a list that was emptied": func(y *day) {
			y.write("10-x.conf", single)
			y.write("10-x.conflist", `{"name":"cbr0","sidecarCNIWraps":"10-x.conf","plugins":[]}`)
			y.install(spec(Inline)).state(spec(Inline), Effective)
			y.uninstall().has("10-x.conf").file("10-x.conf", single)
		},
		"a later network is half written beside a drop-in": func(y *day) {
			y.write("10-x.conflist", flannel).write("20-y.conflist", flannel[:20])
			y.install(spec(DropIn)).state(spec(DropIn), Effective)
			y.has("10-x.conflist", "20-y.conflist", "cbr0", "cbr0/"+DropInName)
		},
		"a wrapped plugin reappears as it was below a list that another plugin has joined": func(
			y *day) {
			y.write("10-x.conf", single).install(spec(Inline))
			list := strings.Replace(string(y.d.tree()["10-x.conflist"].Data), "\n  ]\n}",
				`,{"type":"bandwidth"},`+ourEntry+`]}`, 1)
			y.write("10-x.conf", single).write("10-x.conflist", list).install(spec(Inline)).
				state(spec(Inline), Effective)
			if !strings.Contains(string(y.d.tree()["10-x.conflist"].Data), "bandwidth") {
				y.t.Error("it has been put out again")
			}
		},
		"another mesh chains itself to our copy": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned))
			y.write(ownedName, strings.Replace(flannel, "]", ","+ourEntry+`,{"type":"istio-cni"}]`,
				1)).state(spec(Owned), OtherMesh)
			if plan, err := Install(y.d, spec(Owned)); refusal(err) != OtherMesh ||
				len(plan.Steps) != 0 {
				y.t.Errorf("%v, %s", err, told(plan, nil))
			}
		},
		"another way is configured": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Inline)).state(spec(Owned), Effective).
				state(spec(DropIn), Effective)
		},
		"a drop-in written in another way stays": func(y *day) {
			y.write("10-x.conflist", flannel).write("cbr0/"+DropInName, ourEntry+"\n").
				state(spec(DropIn), Effective)
			y.install(spec(DropIn)).file("cbr0/"+DropInName, ourEntry+"\n")
		},
		"drop-ins that are never loaded may be broken": func(y *day) {
			y.write("10-x.conf", single).write("cbr0/10-y.conf", "{").install(spec(Inline)).
				remove("10-x.conflist")
			y.write("10-x.conflist",
				strings.Replace(flannel, "{", `{"loadOnlyInlinedPlugins":true,`, 1))
			y.install(spec(Auto)).state(spec(Auto), Effective).has("10-x.conflist",
				"cbr0/10-y.conf")
		},
		"Multus comes": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Owned)).write("00-multus.conf", multus)
			y.install(spec(Auto)).has("00-multus.conf", "10-x.conflist").file("10-x.conflist",
				flannel).state(spec(Auto), Effective)
		},
		"a drop-in comes back on top of an entry": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(Inline)).write("cbr0/"+DropInName,
				ourEntry).state(spec(Inline), Repeated)
			y.install(spec(Inline)).state(spec(Inline), Effective).has("10-x.conflist")
		},
		"drop-ins of others keep their directory": func(y *day) {
			y.write("10-x.conflist", flannel).write("cbr0/50-other.conf", `{"type":"tuning"}`)
			y.install(spec(DropIn)).state(spec(DropIn), Effective).uninstall().has("10-x.conflist",
				"cbr0/50-other.conf")
		},
		"a drop-in that cannot be read is written": func(y *day) {
			y.write("10-x.conflist", flannel).install(spec(DropIn)).write("cbr0/"+DropInName,
				ourEntry[:7]).state(spec(DropIn), Broken)
			y.install(spec(DropIn)).state(spec(DropIn), Effective)
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row(&day{t: t})
		})
	}
}

// A file that cannot be edited may have our entry: uninstalling does not call itself done.
func TestUninstallSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	alone := `{"name":"x","cniVersion":"1.0.0","plugins":[` + ourEntry + `]}`
	older := strings.Replace(flannel, "0.3.1", "0.2.0", 1) // nothing can be chained to it
	rows := map[string]struct {
		file File
		want []Reason
	}{
		"nobody but us":         {conf("10-x.conflist", alone), []Reason{Empty}},
		"half written, with us": {conf("10-x.conflist", alone[:90]), []Reason{Broken}},
		"unreadable": {File{Name: "10-x.conflist", Err: fs.ErrPermission},
			[]Reason{Unreadable}},
		"half written":        {conf("10-x.conflist", flannel[:30]), nil},
		"clean":               {conf("10-x.conflist", flannel), nil},
		"no network":          {conf("README", alone), nil},
		"of an older version": {conf("10-x.conflist", older), nil},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := Uninstall(Dir{row.file}, Spec{})
			var got []Reason
			if err != nil {
				got = append(got, refusal(err))
			}
			if !slices.Equal(got, row.want) || len(plan.Steps) != 0 {
				t.Errorf("%v, %s", err, told(plan, nil))
			}
		})
	}
}

// A file that is not loaded and cannot be read says nothing about the node, unless its name is
// ours.
func TestUninstallBesideUnreadableFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]Reason{
		"20-x.conflist": nil, "05-x.conflist": {Unreadable}, ownedName: nil, "20-x.conf": nil,
	} {
		plan, err := Uninstall(Dir{conf("10-x.conflist", flannel),
			{Name: name, Err: fs.ErrPermission}}, Spec{})
		var got []Reason
		if err != nil {
			got = append(got, refusal(err))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if removed := len(plan.Steps) == 1 &&
			plan.Steps[0].Name == name; removed != (name == ownedName) {
			t.Errorf("%s: steps %v", name, plan.Steps)
		}
		if _, err := Uninstall(Dir{conf("10-x.conflist", flannel),
			{Name: name, Err: fs.ErrPermission}}, Spec{SkipsBroken: true}); err != nil {
			t.Errorf("%s, with a runtime that passes over it: %v", name, err)
		}
	}
}

func TestStandalone(t *testing.T) {
	t.Parallel()
	other := conf("50-macvlan.conf", `{"name":"macvlan","cniVersion":"1.0.0","type":"macvlan"}`)
	w := spec(Standalone)
	begin := Dir{other}
	if s := EvaluateStandalone(begin, w); s.Reason != Absent {
		t.Errorf("%+v", s)
	}
	plan, err := InstallStandalone(begin, w)
	if err != nil {
		t.Fatal(err)
	}
	after := begin.After(plan.Steps...)
	n, err := after.tree()[StandaloneName].parse()
	if err != nil || n.name != "istio-cni" || n.version != "1.0.0" || !n.inline[0].ours() {
		t.Errorf("%v, %s", err, after.tree()[StandaloneName].Data)
	}
	if s := EvaluateStandalone(after, w); !s.Effective {
		t.Errorf("%+v", s)
	}
	if plan, err := InstallStandalone(after, w); err != nil || len(plan.Steps) != 0 {
		t.Errorf("again: %v, %s", err, told(plan, nil))
	}
	renamed := w
	renamed.Standalone = "mesh"
	if s := EvaluateStandalone(after, renamed); s.Reason != Outdated {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(begin, after.After(UninstallStandalone(after).Steps...)); diff != "" {
		t.Errorf("uninstall: (-before +after)\n%s", diff)
	}
	taken := Dir{conf("10-istio.conflist", strings.Replace(flannel, "cbr0", "istio-cni", 1))}
	if _, err := InstallStandalone(taken, w); refusal(err) != Taken {
		t.Errorf("a network of that name is there: %v", err)
	}
	renamed.Standalone = "no/name"
	if s := EvaluateStandalone(begin, renamed); s.Reason != BadEntry {
		t.Errorf("%+v", s)
	}
}

// A file of ours that says the same in another way stays as it is; one that cannot be read does
// not.
func TestStandaloneThatIsThereAlready(t *testing.T) {
	t.Parallel()
	w := spec(Standalone)
	w, err := w.normal()
	if err != nil {
		t.Fatal(err)
	}
	data := string(w.standalone())
	if s := EvaluateStandalone(Dir{conf(StandaloneName, data)}, w); !s.Effective {
		t.Errorf("on one line: %+v", s)
	}
	unreadable := Dir{{Name: StandaloneName, Data: []byte(data), Err: fs.ErrPermission}}
	if plan, err := InstallStandalone(unreadable, w); err != nil || len(plan.Steps) != 1 {
		t.Errorf("unreadable: %v, %s", err, told(plan, nil))
	}
}
