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
	d := Dir{conf("10-x.conf", "{\n  \"name\": \"x\",\n  \"cniVersion\": \"0.4.0\",\n  \"type\": \"bridge\"\n}")}
	w := Wish{Way: Inline, Entry: []byte(`{"type":"sidecar-cni","n":1}`)}
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
		plan, err := Install(l.before, wish(Inline))
		if err != nil || len(plan.Steps) != 1 {
			continue
		}
		disk := newDisk(t, l.before)
		cmd := exec.Command("git", "apply", "--unsafe-paths", "-p0", "-")
		cmd.Dir = disk.path
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(disk.path)) // in no repository
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
