package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/contract/refusal"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/program"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func (n *node) add(ns *netns.NS) {
	n.t.Helper()
	n.agent.Put(meshed(nil))
	n.call(request{command: "ADD", netns: ns.Path()}).want(n.t, 0)
}

func TestCheckNamesWhatDiffersAndRepairsNothing(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.add(ns)
	n.call(request{command: "CHECK", netns: ns.Path()}).want(t, 0)
	ns.Run(t, "", "nft", "flush", "chain", "inet", nftables.TableName, "ISTIO_INBOUND")
	for range 2 {
		r := n.call(request{command: "CHECK", netns: ns.Path()})
		r.want(t, 104, "shop/web-0", "ISTIO_INBOUND: rule 1: missing")
		if found, ok := r.last(t)["problems"].([]any); !ok || len(found) == 0 ||
			r.last(t)["path"] != "record" {
			t.Errorf("line %v", r.last(t))
		}
	}
}

// What the annotations ask for by now does not count.
func TestCheckVerifiesWhatWasProgrammed(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.add(ns)
	n.agent.Put(meshed(map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "80a"}))
	conf := map[string]any{"backend": redirect.IptablesNFT, "excludeNamespaces": []string{"shop"}}
	n.call(request{command: "CHECK", netns: ns.Path(), conf: conf}).want(t, 0)
}

func TestCheckOfAnotherNamespaceDiffers(t *testing.T) {
	t.Parallel()
	ns, other, n := netns.New(t), netns.New(t), newNode(t)
	n.add(ns)
	n.call(request{command: "CHECK", netns: other.Path()}).want(t, 104, "network namespace",
		ns.Path())
	wantUntouched(t, other)
}

func TestCheckCannotJudgeRulesOfAnotherRevision(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.add(ns)
	rec := n.recorded("0a1b")
	rec.Revision = "0123456789abcdef"
	if err := record.Dir(n.state).Write(rec); err != nil {
		t.Fatal(err)
	}
	ns.Run(t, "", "nft", "flush", "chain", "inet", nftables.TableName, "ISTIO_INBOUND")
	r := n.call(request{command: "CHECK", netns: ns.Path()})
	r.want(t, 0)
	if r.last(t)["reason"] != "older_revision" {
		t.Errorf("line %v", r.last(t))
	}
}

func TestCheckWithoutARecord(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.add(ns)
	if err := os.RemoveAll(n.state); err != nil {
		t.Fatal(err)
	}
	n.call(request{command: "CHECK", netns: ns.Path()}).want(t, 0) // ours, and its rules are there
	n.call(request{command: "CHECK", netns: netns.New(t).Path()}).want(t, 104, "missing")
	n.agent.Break(nil)
	plain := meshed(nil)
	delete(plain.Annotations, statusKey)
	n.agent.Put(plain)
	r := n.call(request{command: "CHECK", netns: netns.New(t).Path()})
	r.want(t, 0)
	if r.last(t)["outcome"] != "skipped" {
		t.Errorf("line %v", r.last(t))
	}
}

func TestCheckOfABrokenRecord(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.add(ns)
	if err := os.WriteFile(filepath.Join(n.state, "0a1b:eth0.json"), []byte("{"),
		0o600); err != nil {
		t.Fatal(err)
	}
	n.call(request{command: "CHECK", netns: ns.Path()}).want(t, 105, "0a1b:eth0.json")
}

func TestDelSucceeds(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	for name, r := range map[string]request{
		"on nothing":                    {netns: ns.Path()},
		"without a namespace":           {},
		"with a namespace that is gone": {netns: "/nowhere"},
		"on a file":                     {netns: "/etc/hosts"},
		"with a wrong configuration": {conf: map[string]any{"backend": 1, "deadline": "x",
			"redirect": 0, "logLevel": "x", "prevResult": "x"}},
		"with records out of reach": {conf: map[string]any{"stateDir": "/etc/hosts/state"}},
	} {
		r.command = "DEL"
		got := n.call(r)
		if got.err != nil || got.answer != "" || got.last(t)["msg"] != "released pod" {
			t.Errorf("%s: %v, answer %q, line %v", name, got.err, got.answer, got.lines)
		}
		left := strings.Contains(fmt.Sprint(got.last(t)["warnings"]), "left a record behind: ")
		if left != (name == "with records out of reach") {
			t.Errorf("%s: warnings %v", name, got.last(t)["warnings"])
		}
	}
}

func TestDelForgetsOneAttachmentAndLeavesTheRules(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.add(ns)
	n.call(request{command: "ADD", netns: ns.Path(), ifname: "net1"}).want(t, 0)
	policy := n.recorded("0a1b").Policy
	// Runtimes call DEL twice, the second time without a namespace.
	for _, path := range []string{ns.Path(), ""} {
		n.call(request{command: "DEL", netns: path, ifname: "net1"}).want(t, 0)
	}
	if diff := cmp.Diff([]string{filepath.Join(n.state, "0a1b:eth0.json")},
		files(n.state)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	n.call(request{command: "DEL", netns: ns.Path()}).want(t, 0)
	if len(files(n.state)) > 0 {
		t.Errorf("records %q", files(n.state))
	}
	for _, p := range problems(t, ns, redirect.NFTables, policy) {
		t.Errorf("after DEL: %s", p)
	}
}

func (n *node) keep(network, container string) {
	n.t.Helper()
	r := record.Record{Attachment: record.Attachment{Container: container, Interface: "eth0"},
		Network: network}
	if err := record.Dir(n.state).Write(r); err != nil {
		n.t.Fatal(err)
	}
}

func TestGCDropsWhatIsNoMore(t *testing.T) {
	t.Parallel()
	valid := []map[string]string{{"containerID": "b", "ifname": "eth0"},
		{"containerID": "a", "ifname": "net1"}}
	rows := map[string]struct {
		conf map[string]any
		want []string
	}{
		"a list": {map[string]any{"cni.dev/valid-attachments": valid},
			[]string{"b", "other"}},
		"an empty list": {map[string]any{"cni.dev/valid-attachments": []string{}},
			[]string{"other"}},
		"none, as Go has it": {
			map[string]any{"cni.dev/valid-attachments": json.RawMessage("null")},
			[]string{"other"}},
		"the key's older name": {map[string]any{"cni.dev/attachments": valid},
			[]string{"b", "other"}},
		"no list": {nil, []string{"a", "b", "c", "other"}},
		"something else": {map[string]any{"cni.dev/valid-attachments": "b"},
			[]string{"a", "b", "c", "other"}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.keep("pods", "a")
			n.keep("pods", "b")
			n.keep("pods", "c") // behind one that stays
			n.keep("another", "other")
			n.call(request{command: "GC", conf: row.conf}).want(t, 0)
			var want []string
			for _, c := range row.want {
				want = append(want, filepath.Join(n.state, c+":eth0.json"))
			}
			if diff := cmp.Diff(want, files(n.state)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGCGoesOnBehindABrokenRecord(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.keep("pods", "a")
	if err := os.WriteFile(filepath.Join(n.state, "0:eth0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.call(request{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": []string{}}}).
		want(t, 105, "0:eth0.json")
	if diff := cmp.Diff([]string{filepath.Join(n.state, "0:eth0.json")},
		files(n.state)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestStatusFailsForWhatStays(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	away := map[string]any{"agentSocket": "/nowhere", "kubeconfig": "/nowhere"}
	n.call(request{command: "STATUS", conf: away}).want(t, 0)
	n.call(request{command: "STATUS", conf: map[string]any{"backend": redirect.IptablesLegacy}}).
		want(t, 0)
	n.call(request{command: "STATUS", conf: map[string]any{"backend": "ebpf", "deadline": 1}}).
		want(t, 50, "ebpf", "deadline")
	n.call(request{command: "STATUS", conf: map[string]any{"stateDir": "/etc/hosts"}}).want(t, 50,
		"/etc/hosts")
}

func TestAPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	inside := func() error {
		n, err := openNamespace(ns.Path())
		if err != nil {
			return err
		}
		defer n.Close()
		if err := n.Do(func() error { panic("out of\nhand") }); err != nil {
			return kernelRefused.fail("redirect pod: %w", err)
		}
		return nil
	}
	for name, do := range map[string]verb{
		"in a verb": func(context.Context, call,
			deps) (outcome, error) {
			panic("out of\nhand")
		},
		"in a namespace": func(context.Context, call, deps) (outcome, error) {
			return outcome{},
				inside()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := invoke(t, "ADD", do,
				&skel.CmdArgs{StdinData: []byte(`{"cniVersion":"1.0.0","name":"pods"}`)})
			r.want(t, 999, "out of", "hand")
			if !strings.Contains(r.stderr, "goroutine ") ||
				!strings.Contains(r.stderr, "TestAPanicIsAnAnswer") {
				t.Errorf("no stack on standard error: %s", r.stderr)
			}
		})
	}
}

func TestMessagesAreShortAndWhole(t *testing.T) {
	t.Parallel()
	long := badPod.fail("read annotations of pod a/b: %s: the end", strings.Repeat("é", 9000))
	text := classify(long).text()
	if len(text) > refusal.Most || !strings.HasPrefix(text, "read annotations of pod a/b: ") ||
		!strings.HasSuffix(text, "the end; remedy: "+badPod.remedy) ||
		!strings.Contains(text, " ... ") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	fits := strings.Repeat("x", refusal.Most-len("; remedy: "+badPod.remedy))
	if text, want := classify(badPod.fail("%s", fits)).text(),
		fits+"; remedy: "+badPod.remedy; text != want {
		t.Errorf("what just fits is cut: %s", text)
	}
	if text := classify(badState.fail("a\nb")).text(); strings.Contains(text, "\n") {
		t.Errorf("two lines: %q", text)
	}
}

func TestEveryFaultHasItsWord(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{} // of the words; what to do about two of one code differs
	for _, f := range faults {
		if seen[f.word] || f.code == 0 || f.word == "" || f.about == "" || f.remedy == "" {
			t.Errorf("fault %+v", f)
		}
		seen[f.word] = true
	}
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.agent.Put(meshed(nil))
	lines := map[string]int{}
	for _, level := range []string{"error", "info", "debug"} {
		r := n.call(request{command: "ADD", netns: netns.New(t).Path(),
			conf: map[string]any{"logLevel": level}})
		r.want(t, 0)
		lines[level] = len(r.lines)
	}
	if lines["error"] != 0 || lines["info"] != 1 || lines["debug"] < 4 {
		t.Errorf("lines %v", lines)
	}
}

// The file has what concerns the mesh; standard error has all.
func TestTheLogFileIsAboutPodsThatAreOurs(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	file := filepath.Join(t.TempDir(), "plugin.log")
	conf := told(map[string]string{"kubernetes.io/config.seen": "x"})
	conf["logFile"] = file
	n.call(request{command: "ADD", conf: conf}).want(t, 0)
	n.call(request{command: "DEL", conf: conf}).want(t, 0)
	if _, err := os.Stat(file); err == nil {
		t.Error("a pod that is not ours left a file")
	}
	conf = map[string]any{"logFile": file}
	n.agent.Put(meshed(nil))
	n.call(request{command: "ADD", netns: ns.Path(), conf: conf}).want(t, 0)
	n.call(request{command: "CHECK", netns: ns.Path(), conf: conf}).want(t, 0)
	r := n.call(request{command: "DEL", netns: ns.Path(), conf: conf})
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if len(lines) != 3 || !strings.Contains(r.stderr, string(lines[2])) ||
		!bytes.Contains(lines[0], []byte(`"redirected pod"`)) {
		t.Errorf("file:\n%s", data)
	}
}

func TestALogFileOutOfReachHoldsNothingUp(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(nil))
	r := n.call(request{command: "ADD", netns: ns.Path(),
		conf: map[string]any{"logFile": "/etc/hosts/log"}})
	r.want(t, 0)
	if !strings.Contains(r.stderr, "/etc/hosts") {
		t.Errorf("nobody heard of it: %s", r.stderr)
	}
}

func TestRulesGoAgainIfTheRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(nil))
	ns.Run(t, "", "ip", "link", "set", "lo", "up")
	if err := os.MkdirAll(filepath.Join(n.state, "0a1b:eth0.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.call(request{command: "ADD", netns: ns.Path()}).want(t, 105, "0a1b:eth0.json")
	wantUntouched(t, ns)
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{
		"", ";", "=", "K8S_POD_NAME",
		"K8S_POD_NAME=a;K8S_POD_NAMESPACE=b;K8S_POD_UID=c;IgnoreUnknown=1",
		"IgnoreUnknown=1;K8S_POD_UID=c;K8S_POD_NAMESPACE=b;K8S_POD_INFRA_CONTAINER_ID=d;K8S_POD_NAME=a", "K8S_POD_NAME=a=b;;",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		ref := parseArgs(args)
		again := parseArgs(strings.Join([]string{
			"K8S_POD_UID=" + ref.UID, "K8S_POD_NAME=" + ref.Name, "IgnoreUnknown=1",
			"K8S_POD_NAMESPACE=" + ref.Namespace,
		}, ";"))
		if ref != again {
			t.Errorf("%q: %+v, written anew %+v", args, ref, again)
		}
		decision, err := redirect.Decide(redirect.Pod{Namespace: ref.Namespace, Name: ref.Name},
			redirect.Defaults())
		if (ref.Name == "" || ref.Namespace == "") != (decision.Skip == redirect.NotAPod) ||
			err != nil {
			t.Errorf("%q: %+v, %v", args, decision, err)
		}
	})
}

func TestARefusalSaysWhyItWasNotTheConfiguredBackend(t *testing.T) {
	t.Parallel()
	c := call{conf: netconf.Conf{Backend: redirect.IptablesNFT}}
	if got := c.whyBackend(redirect.IptablesNFT); got != "" {
		t.Errorf("it was: %q", got)
	}
	if got := c.whyBackend(redirect.NFTables); !strings.Contains(got, "user namespace") ||
		!strings.Contains(got, redirect.IptablesNFT) {
		t.Errorf("got %q", got)
	}
}

func TestWhyRulesWereNotWritten(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	refused := errors.New("refused")
	record, foreign := &program.RecordError{Err: refused},
		fmt.Errorf("%w: %w", &program.ForeignError{Rules: "a chain"}, refused)
	for name, got := range map[string]struct {
		err  error
		want fault
	}{
		"the kernel refused them": {explain(t.Context(), call{}, "", refused),
			kernelRefused},
		"the time was over":               {explain(over, call{}, "", refused), tooSlow},
		"the record was not":              {explain(t.Context(), call{}, "", record), badState},
		"the record, and no time is left": {explain(over, call{}, "", record), badState},
		"another tool's are there":        {explain(t.Context(), call{}, "", foreign), foreignRules},
	} {
		if kind := classify(got.err); kind.fault != got.want || !errors.Is(got.err, refused) {
			t.Errorf("%s: %s (%v), want %s", name, kind.word, got.err, got.want.word)
		}
	}
}
