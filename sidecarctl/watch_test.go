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
		{"--netns x --port 70000", `--port "70000": want a number from 0 to 65535`},
		{"--netns x --count -1", "--count -1: want"},
		{"--netns x --for -1s", "--for -1s: want"},
		{"--netns x --for 5", `--for "5": want a time such as 30s`},
		{"--netns x -o xml", `--output "xml": want`},
	} {
		stdout, stderr, code := run(t.Context(), "", append([]string{"watch"},
			strings.Fields(row.args)...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("watch %s: %d, %s%s; want %s", row.args, code, stdout, stderr, row.want)
		}
	}
}
