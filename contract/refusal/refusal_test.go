package refusal_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sidecar-cni/sidecar-cni/contract/refusal"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", refusal.Most)
	for name, row := range map[string]struct{ cause, remedy, want string }{
		"a cause and a remedy":   {"no", "do", "no; remedy: do"},
		"a cause with a remedy":  {"no; remedy: do", "", "no; remedy: do"},
		"several causes":         {"a\nb", "do", "a; b; remedy: do"},
		"what is no text":        {"caf\xe9 \x1b[2J\x00", "do", "caf? ?[2J?; remedy: do"},
		"the beginning of much":  {"begin " + long, "do", "begin ä"},
		"the remedy behind much": {long, "do", " ... "},
	} {
		got := refusal.Text(errors.New(row.cause), row.remedy)
		if !strings.Contains(got, row.want) || len(got) > refusal.Most || !utf8.ValidString(got) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
