package main

import (
	"strings"
	"testing"
)

func TestWatchUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args string
		want string
	}{
		{"", "want a target"},
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
