//go:build linux

package iptables

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// creations are the lines that write again what a listing has of ours.
func (have listing) creations() creations {
	lines := creations{}
	for _, table := range redirect.Tables {
		var rules []string
		for name, specs := range have[table] {
			if strings.HasPrefix(name, traces.MeshChains) {
				lines[table] = append(lines[table], "-N "+name)
			}
			for _, spec := range specs {
				if isOurs(spec) {
					rules = append(rules, "-A "+name+" "+spec)
				}
			}
		}
		lines[table] = append(lines[table], rules...)
	}
	return lines
}

// namespaceLock has the legacy variant lock the namespace that it changes, not the node: the file
// of the namespace is the same for all that work there, and for nobody else.
const namespaceLock = "XTABLES_LOCKFILE=/proc/self/ns/net"

// restoreError is what iptables-restore did not take.
type restoreError struct {
	line  string // of the input, for people; "": it named none
	cause error
}

func (e *restoreError) Error() string {
	if e.line == "" {
		return e.cause.Error()
	}
	return fmt.Sprintf("%v: %s", e.cause, e.line)
}

func (e *restoreError) Unwrap() error { return e.cause }

func (t *Tables) restore(ctx context.Context, f redirect.Family, input string) error {
	if input == "" {
		return nil
	}
	_, err := run(ctx, input, t.tools[f].restore, "--noflush")
	if err == nil {
		return nil
	}
	return &restoreError{lineOf(err.Error(), input), err}
}

// badLine is how both variants name the line at which they stopped: "line 19 failed", "line: 19",
// "line 19: RULE_APPEND".
var badLine = regexp.MustCompile(`\bline:? (\d+)\b`)

func lineOf(complaint, input string) string {
	match := badLine.FindStringSubmatch(complaint)
	if match == nil {
		return ""
	}
	number, err := strconv.Atoi(match[1])
	lines := strings.Split(input, "\n")
	if err != nil || number < 1 || number > len(lines) {
		return ""
	}
	// where iptables-nft looks whether chains are there
	for i := number - 1; lines[number-1] == "COMMIT" && i >= 0; i-- {
		if table, ok := strings.CutPrefix(lines[i], "*"); ok {
			return "that line ends table " + table
		}
	}
	return "that line is " + lines[number-1]
}

func (t *Tables) read(ctx context.Context, f redirect.Family) (listing, error) {
	out, err := run(ctx, "", t.tools[f].save)
	if err != nil {
		return nil, err
	}
	return parse(out), nil
}

// run runs a program of iptables, which ends with ctx.
func run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), namespaceLock, "LC_ALL=C")
	cmd.Stdin = strings.NewReader(input)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	// The program may be a script that starts another: all of them end with ctx, and none is waited
	// for longer. It ends with the thread that has started it, too: left behind by a caller that
	// was killed, it would write beside whoever tries again.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", filepath.Base(program), ctx.Err())
	}
	return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err,
		strings.Join(strings.Fields(complaints.String()), " "))
}
