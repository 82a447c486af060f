package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
)

// parse reads settings as the run command does.
func parse(args, environ []string) (settings, error) {
	var s settings
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.Define(set, runGroups(&s))
	if err := set.Parse(args); err != nil {
		return s, err
	}
	return s, flags.FromEnvironment(set, environ, everySetting())
}

func runGroups(s *settings) []flags.Group { return append(s.common(), s.runOnly()) }

func TestEachSettingIsAFlagAndAVariable(t *testing.T) {
	t.Parallel()
	others := map[string]string{"repair-interval": "7m", "plugin-conf": `{"deadline":"3s"}`,
		"exclude-namespaces": "a,b"}
	for _, g := range runGroups(&settings{}) {
		for _, one := range g.Settings {
			value := "other"
			switch {
			case others[one.Name] != "":
				value = others[one.Name]
			case len(one.Words) > 0:
				value = one.Words[len(one.Words)-1]
			case one.Initial == "false":
				value = "true"
			}
			initial, err := parse(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			byFlag, err1 := parse([]string{"--" + one.Name + "=" + value}, nil)
			byVariable, err2 := parse(nil, []string{one.Variable() + "=" + value})
			both, err3 := parse([]string{"--" + one.Name + "=" + value},
				[]string{one.Variable() + "=" + one.Initial})
			unexported := cmp.AllowUnexported(settings{}, agentSettings{}, podSettings{},
				guardSettings{}, reportSettings{})
			if err1 != nil || err2 != nil || err3 != nil {
				t.Errorf("%s: %v, %v, %v", one.Name, err1, err2, err3)
			}
			if diff := cmp.Diff(byFlag, byVariable, unexported); diff != "" {
				t.Errorf("%s: flag and variable differ:\n%s", one.Name, diff)
			}
			if diff := cmp.Diff(byFlag, both, unexported); diff != "" {
				t.Errorf("%s: the flag does not win:\n%s", one.Name, diff)
			}
			if cmp.Equal(initial, byFlag, unexported) {
				t.Errorf("%s: %q changes nothing", one.Name, value)
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
		if _, err := parse(row.args, row.environ); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v %v: %v, want %q", row.args, row.environ, err, want)
		}
	}
	links := []string{"SIDECAR_CNI_METRICS_SERVICE_HOST=10.0.0.1",
		"SIDECAR_CNI_METRICS_PORT_9466_TCP=tcp://10.0.0.1:9466", "HOME=/",
		"SIDECAR_CNI_SERVICE_PORT_METRICS=1",
		"SIDECAR_CNI_STAY=true", "SIDECAR_CNI_BINDING=x"} // of other commands
	if _, err := parse(nil, links); err != nil {
		t.Errorf("variables of Services: %v", err)
	}
}

func TestHelpNamesEverything(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	flags.Help(&out, runGroups(&settings{}))
	for line := range strings.Lines(out.String()) {
		if len(line) > 110 && !strings.HasPrefix(line, "  --") {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	for _, g := range runGroups(&settings{}) {
		for _, one := range g.Settings {
			if !strings.Contains(out.String(), "\n  --"+one.Name) {
				t.Errorf("--%s is not in the help", one.Name)
			}
			if len(one.About) < 20 || !strings.HasSuffix(one.About, ".") {
				t.Errorf("--%s: %q is no sentence", one.Name, one.About)
			}
		}
	}
}
