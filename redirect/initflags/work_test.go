package initflags

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

func TestWhatIstioInitIsToldToDo(t *testing.T) {
	t.Parallel()
	usual := Work{ProbePort: 15002, ProbeTimeout: 5 * time.Second}
	with := func(set func(*Work)) Work {
		w := usual
		set(&w)
		return w
	}
	for line, row := range map[string]struct {
		env  map[string]string
		want Work
	}{
		"-p 15001 --log_as_json":            {nil, usual},
		"--reconcile --dual-stack":          {nil, usual},
		"-n":                                {nil, with(func(w *Work) { w.DryRun = true })},
		"--skip-rule-apply":                 {nil, with(func(w *Work) { w.SkipRules = true })},
		"--run-validation":                  {nil, with(func(w *Work) { w.Validate = true })},
		"--cleanup-only":                    {nil, with(func(w *Work) { w.CleanupOnly = true })},
		"--force-apply=1":                   {nil, with(func(w *Work) { w.ForceApply = true })},
		"--native-nftables":                 {nil, with(func(w *Work) { w.Backend = redirect.NFTables })},
		"--force-iptables-binary nft":       {nil, with(func(w *Work) { w.Backend = redirect.IptablesNFT })},
		"--force-iptables-binary=legacy":    {nil, with(func(w *Work) { w.Backend = redirect.IptablesLegacy })},
		"--iptables-probe-port 1":           {nil, with(func(w *Work) { w.ProbePort = 1 })},
		"--probe-timeout=1m":                {nil, with(func(w *Work) { w.ProbeTimeout = time.Minute })},
		"--network-namespace /n --cni-mode": {nil, with(func(w *Work) { w.NetworkNamespace, w.CNIMode = "/n", true })},
		"-u 1": {map[string]string{
			"DRY_RUN": "true", "SKIP_RULE_APPLY": "1", "RUN_VALIDATION": "t",
			"IPTABLES_PROBE_PORT": "2", "PROBE_TIMEOUT": "3s", "NETWORK_NAMESPACE": "/n",
			"CNI_MODE": "true", "FORCE_IPTABLES_BINARY": "nft", "CLEANUP_ONLY": "no",
		}, Work{
			DryRun: true, SkipRules: true, Validate: true, NetworkNamespace: "/n", CNIMode: true,
			Backend: redirect.IptablesNFT, ProbePort: 2, ProbeTimeout: 3 * time.Second,
		}},
		"--dry-run=false --iptables-probe-port=4": {
			map[string]string{"DRY_RUN": "true", "IPTABLES_PROBE_PORT": "2"},
			with(func(w *Work) { w.ProbePort = 4 }),
		},
	} {
		got, err := ReadWork(strings.Fields(line), row.env)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", line, row.env, diff)
		}
	}
}

func TestWorkThatCannotBeDone(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--iptables-probe-port=65536":                       `"65536": want a port from 1 to 65535`,
		"--probe-timeout=0s":                                `"0s": want a duration such as 5s`,
		"--probe-timeout=11m":                               `"11m": want a duration such as 5s`,
		"--force-iptables-binary=iptables":                  `"iptables": want nft or legacy`,
		"--native-nftables --force-iptables-binary=nft":     "--native-nftables and --force-iptables-binary",
		"--cleanup-only --skip-rule-apply":                  "--cleanup-only and --skip-rule-apply",
		"--cleanup-only --force-apply":                      "--cleanup-only and --force-apply",
		"--cleanup-only --run-validation":                   "--cleanup-only and --run-validation",
		"--force-apply --skip-rule-apply":                   "--force-apply and --skip-rule-apply",
		"--cni-mode":                                        "--cni-mode: want --network-namespace",
		"--iptables-probe-port=x --force-iptables-binary=y": `"y": want nft or legacy`,
		"--nonesuch":                                        `unknown flag "--nonesuch"`,
	} {
		_, err := ReadWork(strings.Fields(line), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// The flags of today's release, in each form that pflag takes.
func TestTheFlagsOfTodaysIstioInit(t *testing.T) {
	t.Parallel()
	all := Usages()
	if len(all) != 32 {
		t.Errorf("%d flags, want 32", len(all))
	}
	for _, f := range all {
		lines := [][]string{{"--" + f.Long + "=true"}, {"--" + f.Long}, {"--" + f.Long, "true"},
			{"--" + f.Long + "="}}
		if f.Short != "" {
			lines = append(lines, []string{"-" + f.Short + "=true"}, []string{"-" + f.Short + "true"},
				[]string{"-" + f.Short, "true"}, []string{"-" + f.Short})
		}
		for _, line := range lines {
			sameAsPflag(t, line)
			if !IsFlag(line[0]) {
				t.Errorf("%s is not known as a flag", line[0])
			}
		}
		name := strings.ToUpper(strings.ReplaceAll(f.Long, "-", "_"))
		got, err := Read(nil, map[string]string{name: "true"}, nil)
		_, read := got[f.Long]
		silent := slices.Contains([]string{"envoy-port", "dual-stack"}, f.Long)
		if err != nil || read == silent {
			t.Errorf("variable %s: read %t, want %t: %v", name, read, !silent, err)
		}
	}
	for _, word := range []string{"", "-", "--", "-h", "--help", "--version", "explain", "--p", "-w"} {
		if IsFlag(word) {
			t.Errorf("%q counts as a flag of istio-init", word)
		}
	}
}
