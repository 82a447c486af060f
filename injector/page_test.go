package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/injector.md")

const (
	settingsPage = "../docs/injector.md"
	pageBegin    = "<!-- Written by `make generate` from the table in injector/settings.go. -->\n"
	pageEnd      = "<!-- Until here. -->\n"
)

// page is the part about settings, in Markdown.
func page() string {
	var b strings.Builder
	var s settings
	for _, command := range []struct {
		name, about string
		groups      []group
	}{
		{"serve", serveAbout, s.serveGroups()},
		{"certify", certifyAbout, s.certifyGroups()},
		{"withdraw", withdrawAbout, s.withdrawGroups()},
		{"validate", validateAbout, s.validateGroups()},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| flag | default | values | |\n|---|---|---|---|\n",
			command.name, command.about)
		for _, g := range command.groups {
			for _, one := range g.Settings {
				fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", one.Name, quoted(one.Initial),
					quoted(strings.Join(one.Words, ", ")), one.About)
			}
		}
	}
	return b.String() + "\n"
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func TestSettingsPage(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(data), pageBegin)
	have, tail, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		t.Fatalf("%s has no part between %q and %q", settingsPage, pageBegin, pageEnd)
	}
	want := page()
	if *update {
		text := head + pageBegin + want + pageEnd + tail
		if err := os.WriteFile(settingsPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is not what the table says; run make generate (-want +have):\n%s",
			settingsPage, diff)
	}
}
