package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

func TestWatchUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args string
		want string
	}{
		{"", "--netns"},
		{"--netns x --protocol sctp", `--protocol "sctp": want tcp or udp`},
		{"--netns x --port 70000", "--port"},
		{"--netns x --count -1", "--count -1: want"},
		{"--netns x --for -1s", "--for -1s: want"},
		{"--netns x --for 5", "--for"},
		{"--netns x -o xml", `--output "xml": want`},
	} {
		stdout, stderr, code := run(t.Context(), "", append([]string{"watch"},
			strings.Fields(row.args)...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("watch %s: %d, %s%s; want %s", row.args, code, stdout, stderr, row.want)
		}
	}
}

// An agent is asked for what the user asked for.
func TestWatchArgs(t *testing.T) {
	t.Parallel()
	for _, w := range []watchFlags{
		{},
		{existing: true, protocol: "udp", port: 53, count: 7, duration: 90 * time.Second},
	} {
		var got watchFlags
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		got.define(f)
		output := f.StringP("output", "o", "", "")
		args := w.args()
		if err := f.Parse(args[1:]); err != nil || args[0] != "watch" || *output != "json" {
			t.Fatalf("%v: %v", args, err)
		}
		if diff := cmp.Diff(w, got, cmp.AllowUnexported(watchFlags{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if o, err := w.options(watch.Options{}.Policy); err != nil || o.Port != w.port ||
			o.Count != w.count || o.Existing != w.existing {
			t.Errorf("%+v, %v", o, err)
		}
	}
}
