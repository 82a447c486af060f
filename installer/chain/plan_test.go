package chain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	d := Dir{conf("10-x.conf", "{\n  \"name\": \"x\",\n  \"cniVersion\": \"0.4.0\",\n  \"type\": "+
		"\"bridge\"\n}")}
	w := Spec{Way: Inline, Entry: []byte(`{"type":"sidecar-cni","n":1}`)}
	plan, err := Install(d, w)
	if err != nil {
		t.Fatal(err)
	}
	want := `--- /dev/null
+++ 10-x.conflist
@@ -0,0 +1,17 @@
+{
+  "cniVersion": "0.4.0",
+  "name": "x",
+  "loadOnlyInlinedPlugins": true,
+  "sidecarCNIWraps": "10-x.conf",
+  "plugins": [
+    {
+      "name": "x",
+      "cniVersion": "0.4.0",
+      "type": "bridge"
+    },
+    {
+      "type": "sidecar-cni",
+      "n": 1
+    }
+  ]
+}
rename from 10-x.conf
rename to 10-x.conf.sidecar-cni-saved
`
	if diff := cmp.Diff(want, plan.Diff(d)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	d = d.After(plan.Steps...)
	w.Entry = []byte(`{"type":"sidecar-cni","n":2}`)
	if plan, err = Install(d, w); err != nil {
		t.Fatal(err)
	}
	want = `--- 10-x.conflist
+++ 10-x.conflist
@@ -11,7 +11,7 @@
     },
     {
       "type": "sidecar-cni",
-      "n": 1
+      "n": 2
     }
   ]
 }
`
	if diff := cmp.Diff(want, plan.Diff(d)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What Diff says of a file is what the patch program understands.
func TestDiffIsAPatch(t *testing.T) {
	t.Parallel()
	for _, l := range layouts(t) {
		plan, err := Install(l.before, spec(Inline))
		if err != nil || len(plan.Steps) != 1 {
			continue
		}
		disk := newDisk(t, l.before)
		cmd := exec.Command("git", "apply", "--unsafe-paths", "-p0", "-")
		cmd.Dir = disk.path
		// Keeps git from finding a repository.
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(disk.path))
		cmd.Stdin = strings.NewReader(plan.Diff(l.before))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", l.name, err, out)
			continue
		}
		if diff := cmp.Diff(l.before.After(plan.Steps...).text(), disk.read().text()); diff != "" {
			t.Errorf("%s: (-After +patched)\n%s", l.name, diff)
		}
	}
}

// Lines that are there several times belong to the head or to the tail, never to both.
func TestDiffOfLinesThatRepeat(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ from, to, want string }{
		"one more": {"}\n}\n", "}\n}\n}\n", "@@ -1,2 +1,3 @@\n }\n }\n+}\n"},
		"one less": {"}\n}\n}\n", "}\n}\n", "@@ -1,3 +1,2 @@\n }\n }\n-}\n"},
		"the same": {"a\n", "a\n", "@@ -1,1 +1,1 @@\n a\n"},
		"none":     {"", "", "@@ -0,0 +0,0 @@\n"},
		"more around than is shown": {
			"1\n2\n3\n4\nx\n5\n6\n7\n8\n", "1\n2\n3\n4\ny\n5\n6\n7\n8\n",
			"@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-x\n+y\n 5\n 6\n 7\n"},
	} {
		got := unified(conf("f", row.from), conf("f", row.to))
		if diff := cmp.Diff("--- f\n+++ f\n"+row.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// Every step says what it is for, since an administrator reads it in the log.
func TestStepsSayWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	list := strings.Replace(flannel, "]", ","+ourEntry+"]", 1)
	saved := "x.conf" + SavedSuffix
	for _, row := range []struct {
		step Step
		want string
	}{
		{Step{Op: MakeDir, Name: "cbr0"}, "for the drop-ins of the network cbr0"},
		{Step{Op: RemoveDir, Name: "cbr0"}, "it was for a drop-in of ours, and is empty"},
		{Step{Op: Rename, Name: "x.conf", To: saved}, "x.conflist wraps it"},
		{Step{Op: Rename, Name: saved, To: "x.conf"}, "it is no longer wrapped"},
		{Step{Op: Remove, Name: ownedName}, "it was written by us and is no longer needed"},
		{
			Step{Op: Remove, Name: saved},
			"what it was saved for has been replaced by another writer"},
		{Step{Op: Write, Name: ownedName}, "a copy of the primary, and our entry"},
		{
			Step{Op: Write, Name: "cbr0/" + DropInName},
			"our entry, which the runtime merges into the network cbr0"},
		{
			Step{Op: Write, Name: "x.conflist", Data: []byte(`{"sidecarCNIWraps":"x.conf"}`)},
			"a list of the plugin of x.conf, and our entry"},
		{
			Step{Op: Write, Name: "x.conflist", Data: []byte(list)},
			"our entry, the last of the chain"},
		{Step{Op: Write, Name: "x.conflist", Data: []byte(flannel)}, "our entry is taken out"},
	} {
		if got := row.step.why(); got != row.want {
			t.Errorf("%s %s: %q, want %q", row.step.Op, row.step.Name, got, row.want)
		}
	}
}

// A plan that would leave the runtime with what it cannot load is none, whichever step it is in.
func TestAPlanThatLibcniCannotLoadIsRefused(t *testing.T) {
	t.Parallel()
	write := func(name, data string) Step { return Step{Op: Write, Name: name, Data: []byte(data)} }
	good, remove := write("10-x.conflist", flannel), Step{Op: Remove, Name: "c"}
	for name, row := range map[string]struct {
		steps []Step
		ok    bool
	}{
		"nothing":          {nil, true},
		"good":             {[]Step{good, write("20-y.conf", single)}, true},
		"nothing is read":  {[]Step{{Op: Rename, Name: "a", To: "b"}, remove}, true},
		"a list":           {[]Step{write("10-x.conflist", single[:9])}, false},
		"a plugin":         {[]Step{write("10-x.conf", flannel)}, false},
		"after a removal":  {[]Step{remove, write("10-x.conf", "")}, false},
		"after a good one": {[]Step{good, write("10-x.conf", "")}, false},
	} {
		err := Plan{Steps: row.steps}.check()
		if (err == nil) != row.ok || !row.ok && reason(err) != Broken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rename keeps what is in the file: where it changes, it is written.
func TestWhatIsARename(t *testing.T) {
	t.Parallel()
	a, b := conf("x.conf", "a"), conf("x.conf", "b")
	const saved = "x.conf" + SavedSuffix
	for name, row := range map[string]struct {
		from, to tree
		want     string
	}{
		"wrapped":            {tree{"x.conf": a}, tree{saved: a}, "x.conf"},
		"and changed":        {tree{"x.conf": a}, tree{saved: b}, ""},
		"and still there":    {tree{"x.conf": a}, tree{saved: a, "x.conf": a}, ""},
		"nothing was there":  {tree{}, tree{saved: conf("x.conf", "")}, ""},
		"only another there": {tree{"y.conf": a}, tree{saved: a}, ""},
	} {
		if got := renamed(row.from, row.to, saved); got != row.want {
			t.Errorf("%s: renamed from %q, want %q", name, got, row.want)
		}
	}
	if got := renamed(tree{saved: a}, tree{"x.conf": a}, "x.conf"); got != saved {
		t.Errorf("unwrapped: renamed from %q", got)
	}
}
