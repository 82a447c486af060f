package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/plugin/netconf"
)

// parse reads settings as the run command does.
func parse(args, environ []string) (settings, error) {
	var s settings
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	s.define(flags, append(table, runOnly))
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	return s, fromEnvironment(flags, environ)
}

func TestEachSettingIsAFlagAndAVariable(t *testing.T) {
	t.Parallel()
	others := map[string]string{"repair-interval": "7m", "plugin-conf": `{"deadline":"3s"}`, "exclude-namespaces": "a,b"}
	for _, g := range append(table, runOnly) {
		for _, one := range g.settings {
			value := "other"
			switch {
			case others[one.name] != "":
				value = others[one.name]
			case len(one.words) > 0:
				value = one.words[len(one.words)-1]
			case one.initial == "false":
				value = "true"
			}
			initial, err := parse(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			byFlag, err1 := parse([]string{"--" + one.name + "=" + value}, nil)
			byVariable, err2 := parse(nil, []string{one.env() + "=" + value})
			both, err3 := parse([]string{"--" + one.name + "=" + value}, []string{one.env() + "=" + one.initial})
			unexported := cmp.AllowUnexported(settings{})
			if err1 != nil || err2 != nil || err3 != nil {
				t.Errorf("%s: %v, %v, %v", one.name, err1, err2, err3)
			}
			if diff := cmp.Diff(byFlag, byVariable, unexported); diff != "" {
				t.Errorf("%s: flag and variable differ:\n%s", one.name, diff)
			}
			if diff := cmp.Diff(byFlag, both, unexported); diff != "" {
				t.Errorf("%s: the flag does not win:\n%s", one.name, diff)
			}
			if cmp.Equal(initial, byFlag, unexported) {
				t.Errorf("%s: %q changes nothing", one.name, value)
			}
		}
	}
}

func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]struct{ args, environ []string }{
		"want one of auto, dropin":  {[]string{"--way", "drop-in"}, nil},
		"want true or false":        {[]string{"--untaint=maybe"}, nil},
		"want a duration of at":     {[]string{"--repair-interval", "5"}, nil},
		"unknown flag: --conf-dirr": {[]string{"--conf-dirr", "/x"}, nil},
		"SIDECAR_CNI_WAYS":          {nil, []string{"SIDECAR_CNI_WAYS=inline"}},
		"SIDECAR_CNI_WAY: invalid":  {nil, []string{"SIDECAR_CNI_WAY=x"}},
	} {
		if _, err := parse(row.args, row.environ); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v %v: %v, want %q", row.args, row.environ, err, want)
		}
	}
	links := []string{"SIDECAR_CNI_METRICS_SERVICE_HOST=10.0.0.1", "SIDECAR_CNI_METRICS_PORT_9466_TCP=tcp://10.0.0.1:9466", "HOME=/", "SIDECAR_CNI_SERVICE_PORT_METRICS=1",
		"SIDECAR_CNI_STAY=true", "SIDECAR_CNI_BINDING=x"} // of other commands
	if _, err := parse(nil, links); err != nil {
		t.Errorf("variables of Services: %v", err)
	}
}

func TestHelpNamesEverything(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	help(&out, append(table, runOnly))
	for line := range strings.Lines(out.String()) {
		if len(line) > 110 && !strings.HasPrefix(line, "  --") {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	for _, g := range append(table, runOnly) {
		for _, one := range g.settings {
			if !strings.Contains(out.String(), "\n  --"+one.name) {
				t.Errorf("--%s is not in the help", one.name)
			}
			if len(one.about) < 20 || !strings.HasSuffix(one.about, ".") {
				t.Errorf("--%s: %q is no sentence", one.name, one.about)
			}
		}
	}
}

func TestEntry(t *testing.T) {
	t.Parallel()
	s, err := parse([]string{"--namespace", "mesh", "--exclude-namespaces", "kube-system,x", "--run-dir", "/r", "--plugin-conf", `{"deadline":"3s","redirect":{"ports":{"dns":5353}}}`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := place{credentials: node.Credentials{Dir: "/c/sidecar-cni.d"}}
	data, err := s.entry(p, "iptables-nft")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte(`{"type":"sidecar-cni",`)) {
		t.Errorf("it begins with %s", data[:20])
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "sidecar-cni", "backend": "iptables-nft", "kubeconfig": "/c/sidecar-cni.d/kubeconfig", "agentSocket": "/r/agent.sock",
		"stateDir": "/r/state", "excludeNamespaces": []any{"kube-system", "mesh", "x"}, "deadline": "3s",
		"redirect":     map[string]any{"ports": map[string]any{"dns": 5353.0}},
		"capabilities": map[string]any{"dns": true, "io.kubernetes.cri.pod-annotations": true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	conf := netconf.Parse(data)
	if len(conf.Mistakes)+len(conf.Warnings) > 0 || conf.Deadline != 3*time.Second || conf.Redirect.Ports.DNS != 5353 {
		t.Errorf("the plugin reads %+v", conf)
	}
}

func TestQuarrel(t *testing.T) {
	t.Parallel()
	var q writerConflict
	now := time.Unix(1e9, 0)
	for i, want := range []int{0, 1, 2, 4, 8, 16, 30, 30} {
		pause := time.Duration(want) * time.Second
		if got := q.undone("a", now); got != pause {
			t.Errorf("time %d: pause %v, want %v", i, got, pause)
		}
		if q.lasting() != (i >= 2) {
			t.Errorf("time %d: lasting is %t", i, q.lasting())
		}
		now = now.Add(pause)
	}
	if got := q.undone("a", now.Add(11*time.Second)); got != 0 || !q.lasting() {
		t.Errorf("after our work stood for a while: pause %v, lasting %t", got, q.lasting())
	}
	if got := q.undone("b", now.Add(12*time.Second)); got != 0 || q.lasting() {
		t.Errorf("another file: pause %v, lasting %t", got, q.lasting())
	}
	if got := q.undone("b", now.Add(13*time.Second)); got != time.Second {
		t.Errorf("that again: pause %v", got)
	}
	if got := q.undone("b", now.Add(6*time.Minute)); got != 0 || q.lasting() {
		t.Errorf("after a quiet time: pause %v, lasting %t", got, q.lasting())
	}
}

func TestReasonsAreWordsOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, r := range chain.Reasons {
		if meanings[reason(r)] == "" {
			t.Errorf("%s has no meaning", r)
		}
	}
	seen := map[string]bool{}
	for _, r := range reasons() {
		word := camel(r)
		if word == "" || strings.ContainsAny(word, "_ ") || word[0] < 'A' || word[0] > 'Z' || seen[word] {
			t.Errorf("%s becomes %q", r, word)
		}
		seen[word] = true
	}
}

func TestTokensOfAnAccount(t *testing.T) {
	t.Parallel()
	for token, ok := range map[string]bool{"": false, "a.b.c": false, "a.e30.c": true, "a.e30": false} {
		if _, got := readClaims([]byte(token)); got != ok {
			t.Errorf("%q: %t", token, got)
		}
	}
}

func TestADaemonWhoseLoopIsSilentIsStartedAnew(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour).Unix()
	for name, row := range map[string]struct {
		reason reason
		beat   int64
		alive  bool
	}{
		"well":             {effective, time.Now().Unix(), true},
		"refused":          {reason(chain.OtherMesh), time.Now().Unix(), true},
		"silent":           {effective, long, false},
		"with a full disk": {badDisk, time.Now().Unix(), true},
	} {
		s := &status{}
		s.beat.Store(row.beat)
		s.set(state{reason: row.reason})
		if s.alive() != row.alive {
			t.Errorf("%s: alive is %t", name, !row.alive)
		}
	}
}
