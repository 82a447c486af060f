package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReadmeListsTheFaults has the README's table of codes say what the plugin does.
func TestReadmeListsTheFaults(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if row := fmt.Sprintf("| %d | `%s` | %s |", f.code, f.word,
			f.about); !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks the row\n%s", row)
		}
	}
}
