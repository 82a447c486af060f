package podfile_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// decisive has, for each form, a digest of what decided about a pod while it was written.
var decisive = map[int]string{
	1: "8426df2284db9da5",
}

// What decides is what an agent writes and a plugin reads: once there is more of it, a file of an
// older agent leaves it out, and must not be believed.
func TestFormChangesWithWhatDecides(t *testing.T) {
	t.Parallel()
	set := fmt.Sprint(redirect.Annotations(), redirect.Labels(), redirect.Variables(),
		redirect.DecisiveArgs, fields(reflect.TypeFor[kubepod.Pod]()))
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(set)))[:16]
	if decisive[podfile.Form] != digest {
		t.Errorf("what decides about a pod has changed: raise podfile.Form, and add a row here with "+
			"the digest %q; if form %d was in no release yet, change its row\n%s", digest,
			podfile.Form, set)
	}
	seen := map[string]int{}
	for form, digest := range decisive {
		if other, ok := seen[digest]; ok || form > podfile.Form {
			t.Errorf("form %d: digest %s, that of form %d, want none beyond %d and each once", form,
				digest, other, podfile.Form)
		}
		seen[digest] = form
	}
}

// fields writes out a type with the names and types of all that is in it.
func fields(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return of.Kind().String() + " of " + fields(of.Elem())
	case reflect.Struct:
		var b strings.Builder
		for f := range of.Fields() {
			fmt.Fprintf(&b, "%s %s;", f.Tag.Get("json"), fields(f.Type))
		}
		return "{" + b.String() + "}"
	default:
		return of.String()
	}
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, pod := range []string{"{}", "", "\n", "{\"metadata\":\n{}}", strings.Repeat("x", 60<<10)} {
		got, err := podfile.Decode(podfile.Encode([]byte(pod)))
		if diff := cmp.Diff(pod, string(got)); diff != "" || err != nil {
			t.Errorf("error %v, pod (-written +read):\n%s", err, diff)
		}
	}
	if diff := cmp.Diff("sidecar-cni pod 1 2\n{}", string(podfile.Encode([]byte("{}")))); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

func TestOtherFilesAreNotBelieved(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"empty":            "",
		"head without end": "sidecar-cni pod 1 2",
		"half":             "sidecar-cni pod 1 2\n{",
		"nothing behind":   "sidecar-cni pod 1 2\n",
		"more behind":      "sidecar-cni pod 1 2\n{}\n",
		"newer form":       "sidecar-cni pod 2 2\n{}",
		"older form":       "sidecar-cni pod 0 2\n{}",
		"another file":     "sidecar-cni token 1 2\n{}",
		"spaces":           "sidecar-cni pod 1  2\n{}",
		"leading zero":     "sidecar-cni pod 01 2\n{}",
		"signs":            "sidecar-cni pod 1 +2\n{}",
		"carriage return":  "sidecar-cni pod 1 2\r\n{}",
		"without head":     "{}",
		"too large":        string(podfile.Encode([]byte(strings.Repeat("x", podfile.MaxFile)))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if pod, err := podfile.Decode([]byte(file)); err == nil || pod != nil {
				t.Errorf("%.80q, error %v; want none and an error", pod, err)
			} else if len(err.Error()) > 300 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"5d1c5f0e-7b0c-4d63-9a54-0c1d5a0f3b11": true,
		"A":                                    true,
		strings.Repeat("a", 64):                true,
		strings.Repeat("a", 65):                false,
		"":                                     false,
		"..":                                   false,
		".":                                    false,
		podfile.FreshFile:                      false,
		"a/b":                                  false,
		"a.b":                                  false,
		"a\x00":                                false,
		"ä":                                    false,
		"a b":                                  false,
		"a_b":                                  false,
	} {
		if got := podfile.ValidName(name); got != want {
			t.Errorf("%q: valid %t, want %t", name, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for _, want := range []time.Duration{0, 1, time.Hour, math.MaxInt64} {
		file := podfile.EncodeTime(want)
		if got, err := podfile.DecodeTime(file); got != want || err != nil || len(file) != 20 {
			t.Errorf("%v from %q, error %v; want %v in 20 bytes", got, file, err, want)
		}
	}
	for _, file := range []string{
		"", "\n", "1\n", "0000000000000000001", "000000000000000000001",
		"0000000000000000001\n\n", "-000000000000000001\n", "+000000000000000001\n",
		"9999999999999999999\n", "00000000000000000x1\n", " 000000000000000001\n",
	} {
		if got, err := podfile.DecodeTime([]byte(file)); err == nil {
			t.Errorf("%v from %q, want an error", got, file)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, file := range []string{"sidecar-cni pod 1 2\n{}", "sidecar-cni pod 1 2\n{",
		"sidecar-cni pod 1 18446744073709551618\n{}", "\n", ""} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		before := string(file)
		pod, err := podfile.Decode(file)
		if string(file) != before {
			t.Errorf("%q was changed to %q", before, file)
		}
		if err == nil && string(podfile.Encode(pod)) != before {
			t.Errorf("%q was read from %q, which is not what is written", pod, before)
		}
		if err != nil && pod != nil {
			t.Errorf("%q beside the error %v", pod, err)
		}
	})
}

func FuzzDecodeTime(f *testing.F) {
	f.Add([]byte("0000000000000000001\n"))
	f.Add([]byte("9223372036854775807\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		at, err := podfile.DecodeTime(file)
		if err == nil && (at < 0 || string(podfile.EncodeTime(at)) != string(file)) {
			t.Errorf("%v from %q", at, file)
		}
	})
}

// The page is what whoever writes another agent has.
func TestThePageHasTheForm(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agent-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	uid := "5d1c5f0e-7b0c-4d63-9a54-0c1d5a0f3b11"
	for _, want := range []string{
		"\n    " + podfile.Dir("/run/sidecar-cni") + "/" + uid + "\n",
		"\n    " + podfile.Dir("/run/sidecar-cni") + "/" + podfile.FreshFile + "\n",
		fmt.Sprintf("| form | %d. ", podfile.Form),
		fmt.Sprintf("| %d KiB a file, %d MiB all of them. ", podfile.MaxFile>>10,
			podfile.MaxAll>>20),
		fmt.Sprintf(" every %.0f s ", podfile.FreshEvery.Seconds()),
		fmt.Sprintf(" at most %.0f s ago", podfile.FreshFor.Seconds()),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if !podfile.ValidName(uid) {
		t.Errorf("%q is the page's uid, and no name", uid)
	}
}
