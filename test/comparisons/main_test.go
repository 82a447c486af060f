package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is there instead of comparing with it")

// TestPages compares what the pages show with what is printed.
func TestPages(t *testing.T) {
	text, err := comparisons()
	if err != nil {
		t.Fatal(err)
	}
	hold(t, "../../docs/from-istio-cni.md", "\n"+text+"\n")
	hold(t, "../../README.md", onPurpose())
}

// hold wants a text between the two marks of a page.
func hold(t *testing.T, page, want string) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, written := strings.Cut(string(data), "<!-- Written by `make generate` from ")
	source, rest, _ := strings.Cut(rest, "\n")
	have, tail, ended := strings.Cut(rest, "<!-- Until here. -->")
	if !written || !ended {
		t.Fatalf("%s: want one part between the marks", page)
	}
	if *update {
		text := head + "<!-- Written by `make generate` from " + source + "\n" + want +
			"<!-- Until here. -->" + tail
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(have, "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("%s (-is +should be); if it should, run make generate\n%s", page, diff)
	}
}
