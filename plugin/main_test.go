package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// within is set where a test runs once more, in a process of its own.
const within = "SIDECAR_CNI_TEST_WITHIN"

// A runtime reads standard output and the exit code. What the program reads is its process's, so
// each row has its own.
func TestWhatTheProgramAnswers(t *testing.T) {
	t.Parallel()
	if os.Getenv(within) != "" {
		main() // which exits
	}
	const conf = `{"cniVersion":"1.0.0","name":"pods","type":"sidecar-cni"}`
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("a program without build information")
	}
	about := "sidecar-cni " + info.Main.Version +
		": a CNI plugin, which the container runtime executes"
	pod := "CNI_ARGS=" + ofPod("shop", "web-0")
	for name, row := range map[string]struct {
		command, args, conf string
		full                bool // standard output has no room
		exit                int
		stdout              string // words in it; "" if it is empty
		line                string // the only one of the log; "" if there is none
		stderr              string // words in it
	}{
		"run by hand": {stderr: about},
		"asked for versions": {command: "VERSION", conf: conf,
			stdout: `"supportedVersions":["0.3.0",`},
		"a pod that is not ours": {
			command: "ADD", conf: conf, stdout: `{"cniVersion":"1.0.0"}`, line: "skipped pod",
		},
		"nothing to answer": {command: "DEL", conf: conf, line: "released pod"},
		"nothing to answer, and no room": {command: "DEL", conf: conf, full: true,
			line: "released pod"},
		"an answer, and no room": {
			command: "ADD", conf: conf, full: true, exit: 1, line: "skipped pod",
			stderr: "write answer: ",
		},
		"a refusal of ours": {
			command: "ADD", args: pod, conf: conf, exit: 1, stdout: `"cniVersion": "1.0.0"`,
			line: "refused call",
		},
		"a refusal before we were called": {command: "FLY", conf: conf, exit: 1,
			stdout: `"code": 4`, line: "refused call"},
		"a configuration that is none": {command: "ADD", conf: "{", exit: 1, stdout: `"code": 6`,
			line: "refused call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), os.Args[0],
				"-test.run=^TestWhatTheProgramAnswers$")
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), "CNI_CONTAINERID=0a1b", "CNI_NETNS=/nowhere",
				"CNI_IFNAME=eth0", "CNI_PATH=/nowhere",
				within + "=yes", "CNI_COMMAND=" + row.command, row.args,
			}
			conf := strings.Replace(row.conf, "{",
				`{"stateDir":"`+filepath.Join(t.TempDir(), "state")+`",`, 1)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &stderr
			if row.full {
				cmd.Stdout = full
			}
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != row.exit {
				t.Errorf("exit code %d, want %d; log: %s", code, row.exit, &stderr)
			}
			if got := stdout.String(); (got == "") != (row.stdout == "") ||
				!strings.Contains(got, row.stdout) {
				t.Errorf("standard output %q, want %q", got, row.stdout)
			}
			if !strings.Contains(stderr.String(), row.stderr) {
				t.Errorf("standard error %q, want %q", &stderr, row.stderr)
			}
			if got := strings.Join(messages(stderr.String()), ", "); got != row.line {
				t.Errorf("the log says %q, want %q", got, row.line)
			}
		})
	}
}

// messages are those of the lines of a log.
func messages(log string) []string {
	var all []string
	for line := range strings.Lines(log) {
		var fields struct{ Msg string }
		if json.Unmarshal([]byte(line), &fields) == nil {
			all = append(all, fields.Msg)
		}
	}
	return all
}
